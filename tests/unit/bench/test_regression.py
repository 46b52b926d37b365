"""A benchmark held against a record: by ratios, within the spread, and never against nothing."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from v4gen.cli import main
from v4gen.emit.lock import LOCK_NAME, Lock, PackageLock, lock_text, read_lock
from v4gen.emit.provenance import UNKNOWN
from v4gen.run.contest import Shape
from v4gen.run.record import package_digests
from v4gen.run.regression import verdicts
from v4gen.run.timing import COPY, MATMUL, OURS, Contest, Skip, Timing

SHAPE = Shape(1, 64, 0, 4, 8)


def timing(task: str, who: str, median: float, spread: float = 0.01) -> Timing:
    return Timing(task, who, SHAPE, median, median * (1 - spread), median * (1 + spread))


def contest(ours: float, rival: float = 3, matmul: float = 1, copy: float = 2) -> Contest:
    timings = (timing(MATMUL, "torch", matmul), timing(COPY, "torch", copy), timing("forward", OURS, ours))
    return Contest((*timings, timing("forward", "nemo", rival)), ())


RECORDED = contest(1)


@pytest.mark.parametrize(
    ("found", "fault"),
    [
        (contest(1), False),
        (contest(1.03), False),  # the ranges of both runs meet
        (contest(1.05), True),
        (contest(0.5), False),
        (contest(3, rival=9, matmul=3, copy=6), False),  # another clock
        (contest(1.5, rival=4.5), False),  # the rival became slower too: product and copy alone do not convict
        (contest(1.5, rival=2, matmul=0.5, copy=1), True),
    ],
)
def test_a_regression_is_one_by_every_yardstick(found: Contest, fault: bool) -> None:
    (verdict,) = verdicts(RECORDED, found)
    assert bool(verdict.fault) == fault


def test_the_mildest_yardstick_speaks() -> None:
    (verdict,) = verdicts(RECORDED, contest(1.5, rival=4.5))
    assert verdict.yardstick == "nemo"
    assert verdict.change == pytest.approx(0)
    (verdict,) = verdicts(RECORDED, contest(1.1, matmul=1.05))
    assert verdict.yardstick == "matmul, torch"
    assert verdict.as_data()["fault"] == "slower, beyond the spread of both runs"


def test_what_cannot_be_timed_any_more_is_a_fault() -> None:
    found = replace(contest(1), timings=contest(1).timings[:2], skips=(Skip("forward", OURS, SHAPE, "too large"),))
    (verdict,) = verdicts(RECORDED, found)
    assert verdict.fault == "not timed any more: too large"


def test_other_shapes_and_tasks_left_out_are_not_compared() -> None:
    assert not verdicts(RECORDED, replace(contest(1), timings=contest(1).timings[:2]))
    elsewhere = tuple(replace(timing, shape=Shape(1, 8, 0, 4, 8)) for timing in contest(9).timings)
    assert not verdicts(RECORDED, Contest(elsewhere, ()))


def bench(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["bench", *arguments])


@pytest.fixture
def record(project: Path) -> Callable[[float], Path]:
    """A record of the package, in which it takes `factor` times as long as it did."""
    shapes = ["--shape", "length=24", "--task", "forward", "--rival", "torch"]
    assert bench(*shapes, "--record", "record.json").exit_code == 0

    def write(factor: float) -> Path:
        data = json.loads((project / "record.json").read_text())
        for row in data["bench"]["timings"]:
            if row["who"] == OURS:
                row |= {name: row[name] * factor for name in ("median_ms", "fastest_ms", "slowest_ms")}
        path = project / "held.json"
        path.write_text(json.dumps(data))
        return path

    return write


def test_the_exit_code_tells_of_a_regression(record: Callable[[float], Path]) -> None:
    """Shapes, tasks and rivals are the record's."""
    same = bench("--against", str(record(1000)), "--json")
    assert same.exit_code == 0, same.output
    found = json.loads(same.stdout)
    assert [(row["task"], row["length"], row["fault"]) for row in found["against"]] == [("forward", 24, "")]
    assert {row["who"] for row in found["results"]["one"]["timings"]} == {"torch", OURS}
    slower = bench("--against", str(record(1 / 1000)))
    assert slower.exit_code == 1
    assert "slower, beyond the spread" in slower.stdout


def test_a_lock_names_the_record(record: Callable[[float], Path], project: Path) -> None:
    held, output = record(1 / 1000), project / "generated"
    lock = output / LOCK_NAME
    assert "names no benchmark of `one` on cpu" in bench("--against", str(written(lock, {}))).stderr
    assert bench("--accept", str(held)).exit_code == 2  # of other files than the lock's
    written(lock, package_digests(output / "one"))
    assert bench("--accept", str(held)).exit_code == 0
    assert (read_lock(output) or Lock()).packages["one"].benchmarks["cpu"].path == "../held.json"
    assert bench("--against", str(lock)).exit_code == 1
    held.write_text(held.read_text() + "\n")
    edited = bench("--against", str(lock))
    assert edited.exit_code == 2 and "is not the one that `v4gen.lock` names" in edited.stderr


def test_a_failing_gate_leaves_what_it_is_held_against(record: Callable[[float], Path], project: Path) -> None:
    held, output = record(1 / 1000), project / "generated"
    lock = written(output / LOCK_NAME, package_digests(output / "one"))
    assert bench("--accept", str(held)).exit_code == 0
    before = lock.read_bytes(), held.read_bytes()
    assert bench("--against", str(lock), "--record", "new.json").exit_code == 1
    assert (project / "new.json").exists()
    for against in (held, lock):
        over = bench("--against", str(against), "--record", "held.json")
        assert over.exit_code == 2 and "would replace the record" in over.stderr
    assert (lock.read_bytes(), held.read_bytes()) == before


def test_a_narrower_record_is_not_named(record: Callable[[float], Path], project: Path) -> None:
    held, output = record(1), project / "generated"
    lock = written(output / LOCK_NAME, package_digests(output / "one"))
    assert bench("--accept", str(held)).exit_code == 0
    before = lock.read_bytes()
    narrow = bench("--shape", "length=24", "--task", "scores", "--record", "new.json")
    assert narrow.exit_code == 2 and "lacks forward at B=1 S=24" in " ".join(narrow.stderr.split())
    assert lock.read_bytes() == before
    assert bench("--accept", "new.json").exit_code == 0
    assert lock.read_bytes() != before


def written(lock: Path, files: dict[str, str]) -> Path:
    lock.write_text(lock_text(Lock({"one": PackageLock("0", UNKNOWN, "a", files)})))
    return lock


def test_the_lock_names_a_record_of_the_project_alone(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    output = project / "generated"
    written(output / LOCK_NAME, package_digests(output / "one"))
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "record.json"
    for path, named in ((elsewhere, set()), (project / "records" / "one.json", {"../records/one.json"})):
        assert bench("--shape", "length=8", "--task", "forward", "--record", str(path)).exit_code == 0
        benchmarks = (read_lock(output) or Lock()).packages["one"].benchmarks
        assert {entry.path for entry in benchmarks.values()} == named


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data["machine"].update(name="another"), "is of another, this is"),
        (lambda data: data["bench"].update(spec="two"), "is of spec `two`, this is `one`"),
        (lambda data: data["bench"].update(target="sm_80"), "is of the kernels for sm_80, and those for cpu ran"),
        (lambda data: data["bench"]["timings"].clear(), "the record has none of the shapes and tasks"),
        (lambda data: data["bench"]["timings"][0].pop("task"), "cannot use the record"),
        (lambda data: data.pop("bench"), "it is none of a benchmark"),
    ],
)
def test_a_record_that_tells_nothing_is_2(
    record: Callable[[float], Path], change: Callable[[Any], Any], message: str
) -> None:
    path = record(1)
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    result = bench("--against", str(path), "--shape", "length=24")
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
