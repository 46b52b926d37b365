"""A search on the CPU, from compiling to picks."""

from pathlib import Path
from typing import Any

import pytest

from v4gen.plan.space import options
from v4gen.plan.target import TARGETS
from v4gen.read.reader import read_specs
from v4gen.run import tune
from v4gen.run.contest import Shape
from v4gen.run.package import imported_package
from v4gen.run.trial import Fate, Log

SPECS = Path(__file__).parents[2] / "specs"


def test_a_search_on_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (spec,) = read_specs([SPECS / "tiny.yaml"])
    target = TARGETS["cpu"]

    def two_of_each(*arguments: Any) -> Any:
        found = options(*arguments)
        return {kernel: found[kernel][:2] for kernel in ("scores", "backward")}

    monkeypatch.setattr(tune, "options", two_of_each)
    kept: list[Log] = []
    search = tune.Search(spec, target, tmp_path, None, 1, kept.append, lambda *step: None)
    log = tune.tune(search, tune.new_log(spec, target), "cpu", [Shape.of(spec, length=150, batch=2)], seconds=120)
    assert kept[-1] == log and set(log.picks) == {"scores", "backward"}
    assert {trial.fate for trial in log.trials} == {Fate.PICKED, Fate.FINALIST}
    assert all(trial.fastest_ms <= trial.median_ms <= trial.slowest_ms for trial in log.trials)
    # What another schedule than the plan's own would be pinned as is what its package carries.
    other = next(trial for trial in log.trials if trial.kernel == "scores" and trial is not log.trials[0])
    with imported_package(search.package(other)) as package:
        schedule = package.fwd.SCHEDULES["cpu"]
        assert schedule.block_Q == other.pins["scores_block_q"] and schedule.block_N == other.pins["scores_block_n"]
