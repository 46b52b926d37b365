"""A search for schedules, over packages in plain torch whose times are made up."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from v4gen.cli import main
from v4gen.plan.space import Option
from v4gen.plan.target import TARGETS
from v4gen.read.reader import parse_spec
from v4gen.run import race, tune
from v4gen.run.burst import Rehearsal
from v4gen.run.compile import KernelReport, Resources, Stage
from v4gen.run.contest import Shape, Unfit
from v4gen.run.package import Package
from v4gen.run.trial import Fate, read_log

SPEC = "schema: v4gen/1\nname: one  # a comment\nheads: 4\ndim: 32\ntopk: 8\ncompress_ratio: 4\ntargets: [cpu]\n"
LOG = "one.cpu.tune.json"
RESOURCES = Resources(48, 0, 1024, {})


@dataclass
class Workshop:
    """What a search would compile and time: for each size of a kernel, how its compilation ends and its milliseconds.

    Size 16 is the plan's own, and `compiled` the sizes in the order in which they were compiled.
    """

    milliseconds: dict[int, float] = field(default_factory=dict)
    problems: dict[int, str] = field(default_factory=dict)
    wrong: set[int] = field(default_factory=set)
    compiled: list[tuple[str, int, Path | None]] = field(default_factory=list)
    rounds: int = 0
    noise: float = 0.01
    pins: dict[Path, Mapping[str, int]] = field(default_factory=dict)

    def options(self, spec: Any, target: Any) -> dict[str, tuple[Option, ...]]:
        sizes = [16, *(size for size in self.milliseconds if size != 16)]
        return {
            kernel: (*(Option(kernel, {pin: size}) for size in sizes), Option(kernel, {pin: 999}, excess="too large"))
            for kernel, pin in (("scores", "scores_block_n"), ("backward", "backward_block_i"))
        }

    def size(self, folder: Path, kernel: str) -> int:
        name = {"scores": "scores_block_n", "backward": "backward_block_i"}[kernel]
        return self.pins[folder].get(name, 16)

    def compile_kernel(
        self, folder: Path, kernel: str, target: str, nvcc: Path | None, *, to_run: bool
    ) -> KernelReport:
        size = self.size(folder, kernel)
        self.compiled.append((kernel, size, nvcc))
        resources = None if to_run and nvcc is None else RESOURCES
        return KernelReport(kernel, target, Stage.COMPILED, 0.5, "", resources, self.problems.get(size, ""))

    def compile(self, tasks: Any, workers: int, patience: Any, *, to_run: bool) -> Iterator[tuple[int, KernelReport]]:
        return ((number, self.compile_kernel(*task, to_run=to_run)) for number, task in tasks)

    def time_burst(self, call: Any, count: int, device: str) -> float:
        answers = call.__self__
        kernel = "backward" if call.__name__ == "backward" else "scores"
        self.rounds += 1
        return self.milliseconds[self.size(answers.package.folder, kernel)] * (1 + self.noise * (self.rounds % 3 - 1))


@pytest.fixture
def workshop(monkeypatch: pytest.MonkeyPatch, plain_package: Callable[[str], Package]) -> Workshop:
    shop = Workshop({16: 2.0, 32: 1.0, 8: 3.0})

    @contextmanager
    def imported(folder: Path) -> Iterator[Any]:
        package = SimpleNamespace(**vars(plain_package("BSHD")), folder=folder)
        if shop.size(folder, "scores") in shop.wrong:
            package.fwd = SimpleNamespace(**vars(package.fwd))
            package.fwd.batched_indexer_fwd = lambda *inputs: plain_package("BSHD").fwd.batched_indexer_fwd(*inputs) + 9
        yield package

    monkeypatch.setattr(tune, "options", shop.options)
    monkeypatch.setattr(tune, "compiled", shop.compile)
    monkeypatch.setattr(tune, "write_pinned", lambda spec, target, pins, folder: shop.pins.update({folder: pins}))
    monkeypatch.setattr(tune, "imported_package", imported)
    monkeypatch.setattr(tune, "rehearse", lambda call, device: Rehearsal(-1, 1))
    monkeypatch.setattr(race, "time_burst", shop.time_burst)
    return shop


@pytest.fixture
def spec_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("v4gen.pipeline.validate", lambda spec, folder, device: SimpleNamespace(passed=True))
    monkeypatch.setattr("v4gen.cli.tune.require_runtime", lambda device: None)
    path = tmp_path / "one.yaml"
    path.write_text(SPEC)
    return path


def run(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["tune", "one.yaml", "--target", "cpu", "--length", "40", "-j", "1", *arguments])


def fates(kernel: str) -> dict[int, Fate]:
    return {size: trial.fate for trial in read_log(Path(LOG)).of(kernel) for size in trial.pins.values()}


def test_the_fastest_is_pinned_with_its_margins(workshop: Workshop, spec_path: Path) -> None:
    workshop.noise = 0
    result = run()
    assert result.exit_code == 0, result.output
    assert fates("scores") == {16: Fate.FINALIST, 32: Fate.PICKED, 8: Fate.FINALIST, 999: Fate.EXCEEDS}
    log = read_log(Path(LOG))
    pick = log.picks["scores"]
    assert pick.over_default == pytest.approx(1) and pick.runner_up == {"scores_block_n": 16}
    text = spec_path.read_text()
    assert (
        text.startswith(SPEC) and "# scores: the plan's own takes 100.0% longer, the runner-up 100.0%; B=1 S=40" in text
    )
    assert dict(parse_spec(text, "one.yaml").schedule["cpu"]) == {"scores_block_n": 32, "backward_block_i": 32}
    (too_large,) = (trial for trial in log.of("scores") if trial.fate is Fate.EXCEEDS)
    assert too_large.reason == "too large"


def test_what_is_not_beyond_the_noise_stays(workshop: Workshop, spec_path: Path) -> None:
    workshop.milliseconds = {16: 2.0, 32: 1.97}
    result = run()
    assert "one.yaml is as it was" in result.stdout
    assert spec_path.read_text() == SPEC
    assert fates("scores")[16] is Fate.PICKED and read_log(Path(LOG)).picks["scores"].is_default


def test_many_are_dropped_round_by_round(workshop: Workshop, spec_path: Path) -> None:
    workshop.milliseconds = {16: 50.0} | {size: float(size) for size in range(20, 30)}
    assert run().exit_code == 0
    found = fates("scores")
    # The plan's own is the slowest and runs in the finals all the same.
    assert {size for size, fate in found.items() if fate is Fate.FINALIST} == {16, 21, 22}
    assert found[20] is Fate.PICKED and found[29] is Fate.SLOWER


def test_what_does_not_compile_or_is_wrong_is_out_with_the_reason(workshop: Workshop, spec_path: Path) -> None:
    workshop.milliseconds |= {64: 0.1, 128: 0.1}
    workshop.problems[64] = "16 bytes of registers are spilled to memory"
    workshop.wrong.add(128)
    assert run().exit_code == 0
    reasons = {size: trial.reason for trial in read_log(Path(LOG)).of("scores") for size in trial.pins.values()}
    assert fates("scores")[64] is Fate.FAILED and reasons[64] == workshop.problems[64]
    assert fates("scores")[128] is Fate.WRONG and "scores out of bounds" in reasons[128]
    assert fates("scores")[32] is Fate.PICKED


def test_without_a_device_only_the_compiler_works_and_a_later_run_goes_on(
    workshop: Workshop, spec_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("v4gen.cli.tune._device", lambda target: None)
        first = run()
    assert first.exit_code == 0 and "nothing was timed" in first.stdout
    assert set(fates("scores").values()) == {Fate.COMPILED, Fate.EXCEEDS} and not workshop.rounds
    compiled = len(workshop.compiled)
    assert run().exit_code == 0
    assert len(workshop.compiled) == compiled  # a CPU's are in the cache
    assert fates("scores")[32] is Fate.PICKED


def test_when_the_time_is_up_the_plans_own_is_there(workshop: Workshop, spec_path: Path, tmp_path: Path) -> None:
    spec, target = parse_spec(SPEC, "one.yaml"), TARGETS["cpu"]
    search = tune.Search(spec, target, tmp_path, None, 1, lambda log: None, lambda *step: None)
    shapes = [Shape.of(spec, length=40)]
    log = tune.tune(search, tune.new_log(spec, target), "cpu", shapes, seconds=0)
    assert [task[:2] for task in workshop.compiled] == [("scores", 16), ("backward", 16)]
    assert [trial.fate for trial in log.of("scores")] == [Fate.COMPILED, Fate.WAITING, Fate.WAITING, Fate.EXCEEDS]
    assert not log.picks and not workshop.rounds


def test_pins_stay_where_nothing_was_timed_beside_the_plans_own(workshop: Workshop, spec_path: Path) -> None:
    pinned = SPEC + "schedule:\n  cpu:\n    # by hand\n    scores_block_n: 8\n    backward_block_i: 8\n"
    spec_path.write_text(pinned)
    workshop.milliseconds = {16: 2.0}
    result = run()
    assert result.exit_code == 0 and spec_path.read_text() == pinned
    assert "nothing was timed: nothing but the plan's own was ready" in result.stdout


def test_without_the_plans_own_there_is_nothing_to_beat(workshop: Workshop, spec_path: Path) -> None:
    workshop.problems[16] = "no such instruction"
    result = run()
    assert result.exit_code == 2
    assert "the plan's own scores kernel does not compile: no such instruction" in result.stderr


def test_a_frozen_run_pins_what_the_log_picked(workshop: Workshop, spec_path: Path) -> None:
    assert run().exit_code == 0
    pinned, rounds = spec_path.read_text(), workshop.rounds
    spec_path.write_text(SPEC)
    result = run("--frozen")
    assert result.exit_code == 0 and spec_path.read_text() == pinned and workshop.rounds == rounds
    spec_path.write_text(SPEC.replace("topk: 8", "topk: 9"))
    stale = run("--frozen")
    assert stale.exit_code == 2 and "is of other spec" in stale.stderr


def test_a_log_of_other_kernels_is_begun_anew(workshop: Workshop, spec_path: Path) -> None:
    assert run("--dry-run").exit_code == 0
    compiled = len(workshop.compiled)
    spec_path.write_text(SPEC.replace("topk: 8", "topk: 9"))
    assert run("--dry-run").exit_code == 0
    assert len(workshop.compiled) == 2 * compiled


def test_nothing_is_pinned_that_does_not_validate(
    workshop: Workshop, spec_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("v4gen.pipeline.validate", lambda spec, folder, device: SimpleNamespace(passed=False))
    result = run()
    assert result.exit_code == 1 and "does not validate" in result.stderr
    assert spec_path.read_text() == SPEC
    assert fates("scores")[32] is Fate.WRONG
    frozen = run("--frozen")
    assert frozen.exit_code == 2 and "has no pick" in frozen.stderr


def test_a_dry_run_and_json(workshop: Workshop, spec_path: Path) -> None:
    result = run("--dry-run", "--json")
    document = json.loads(result.stdout)
    assert [*document] == ["passed", "written", "log"] and not document["written"]
    assert document["log"] == json.loads(Path(LOG).read_text())
    assert spec_path.read_text() == SPEC


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--budget", "5"], "expected a time such as 90s, 5m or 1h"),
        (["--budget", "0m"], "expected a time"),
        (["--target", "sm_80"], "has no target `sm_80`"),
        (["--frozen"], "cannot use the log"),
    ],
)
def test_bad_usage_is_2(workshop: Workshop, spec_path: Path, arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.output.replace("│", " ").split())


@pytest.mark.parametrize("text", ["", "[]", '{"tune": 7}', '{"tune": 1, "trials": 3}'])
def test_a_log_that_is_none_is_refused(workshop: Workshop, spec_path: Path, text: str) -> None:
    Path(LOG).write_text(text)
    assert run().exit_code == 2
    assert Path(LOG).read_text() == text


def test_a_task_that_cannot_be_made_at_a_shape_ends_the_search(
    workshop: Workshop, spec_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any) -> Any:
        raise Unfit("the matrix of all scores would take 64 GiB")

    monkeypatch.setattr(tune, "_laps", refuse)
    result = run()
    assert result.exit_code == 2 and "would take 64 GiB" in result.stderr


@pytest.mark.parametrize(
    ("end", "size", "fate"),
    [
        (SystemExit, 32, Fate.WRONG),  # whoever ends the process is not tried again
        (SystemExit, 16, Fate.WRONG),  # but the plan's own, beside which all are timed
        (KeyboardInterrupt, 32, Fate.COMPILED),
        (KeyboardInterrupt, 16, Fate.COMPILED),
    ],
)
def test_a_search_that_was_ended_goes_on(
    workshop: Workshop,
    spec_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    end: type[BaseException],
    size: int,
    fate: Fate,
) -> None:
    laps = tune._laps

    def ended(package: Any, *rest: Any) -> Any:
        if workshop.size(package.folder, "scores") == size:
            raise end(3)
        return laps(package, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(tune, "_laps", ended)
        assert run().exit_code != 0
    assert fates("scores")[size] is fate
    assert run().exit_code == 0
    picked = 16 if (end, size) == (SystemExit, 32) else 32
    assert {found for found, fate in fates("scores").items() if fate is Fate.PICKED} == {picked}


def test_what_was_compiled_elsewhere_is_made_ready_only(workshop: Workshop, spec_path: Path, tmp_path: Path) -> None:
    spec, target = parse_spec(SPEC.replace("cpu", "sm_90a"), "one.yaml"), TARGETS["sm_90a"]
    search = tune.Search(spec, target, tmp_path, Path("nvcc"), 1, lambda log: None, lambda *step: None)
    log = tune.compile_trials(search, tune.new_log(spec, target), tune.Deadline(60), to_run=False)
    assert {nvcc for *_, nvcc in workshop.compiled} == {Path("nvcc")}
    workshop.compiled.clear()
    ready = tune.compile_trials(search, log, tune.Deadline(60), to_run=True)
    assert {nvcc for *_, nvcc in workshop.compiled} == {None}
    assert [trial.registers for trial in ready.of("scores")] == [48, 48, 48, 0]
