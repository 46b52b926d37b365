"""The benchmark and the search on a GPU: each task is timed, and what a search compiled is what it times."""

from pathlib import Path
from typing import Any

import pytest

from v4gen.plan.space import options
from v4gen.plan.target import TARGETS
from v4gen.read.reader import read_specs
from v4gen.run import tune
from v4gen.run.bench import Course, bench_package
from v4gen.run.contest import Shape
from v4gen.run.power import Meter, NoMeter
from v4gen.run.timing import CEILING, COPY, MATMUL, OURS
from v4gen.run.toolchain import find_nvcc
from v4gen.run.trial import Fate, Log

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).parents[2]
TASKS = ("kernel", "scores", "select", "forward", "backward", "forward+backward", "reproducible backward")


def test_every_task_is_timed_beside_plain_torch() -> None:
    (spec,) = read_specs([ROOT / "specs" / "tiny.yaml"])
    shape = Shape.of(spec, length=600, batch=2)
    try:
        meter = Meter("cuda")
    except NoMeter:
        meter = None
    course = Course(rivals=("torch",), sustained_seconds=1)
    contest = bench_package(ROOT / "generated" / "tiny", spec, "cuda", [shape], course, meter)
    assert not contest.skips
    timed = {(timing.task, timing.who) for timing in contest.timings}
    rivals = {(task, "torch") for task in ("forward", "backward", "forward+backward")}
    assert timed == {(MATMUL, CEILING), (COPY, CEILING), *((task, OURS) for task in TASKS)} | rivals
    assert all(timing.sustained_ms > 0 and timing.extra_mib >= 0 for timing in contest.timings)
    assert meter is None or all(timing.energy_mj > 0 and timing.sm_mhz > 0 for timing in contest.timings)


def test_a_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (spec,) = read_specs([ROOT / "specs" / "deepseek_v4_flash.yaml"])
    name = tune.target_of_gpu()
    if name not in spec.targets or find_nvcc() is None:
        pytest.skip(f"{name} is no target of {spec.name}, or there is no nvcc")
    target = TARGETS[name]

    def two_of_each(*arguments: Any) -> Any:
        usable = {
            kernel: [option for option in found if not option.excess and not option.fault]
            for kernel, found in options(*arguments).items()
        }
        return {kernel: found[:2] for kernel, found in usable.items()}

    monkeypatch.setattr(tune, "options", two_of_each)
    kept: list[Log] = []
    search = tune.Search(spec, target, tmp_path, find_nvcc(), 2, kept.append, lambda *step: None)
    log = tune.tune(search, tune.new_log(spec, target), "cuda", [Shape.of(spec, length=4096)], seconds=240)
    assert set(log.picks) == {"scores", "select", "backward"}
    assert not [trial for trial in log.trials if trial.fate is Fate.WRONG], log
    assert all(trial.registers for trial in log.trials if trial.fate in (Fate.PICKED, Fate.FINALIST))
