"""The command line, its record and its chart."""

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from v4gen.cli import main
from v4gen.read.spec import Spec
from v4gen.report.chart import lines, write_charts
from v4gen.run import bench
from v4gen.run.answers import Answers
from v4gen.run.contest import Shape, drawn_shapes
from v4gen.run.rivals import RIVALS
from v4gen.run.timing import COPY, MATMUL, OURS, Contest, Skip, Timing, read_contest

ROOT = Path(__file__).parents[3]
SCHEMA = json.loads((ROOT / "docs" / "schemas" / "bench.schema.json").read_text(encoding="utf-8"))


def run_command(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["bench", *arguments])


def test_one_record_of_many_shapes(project: Path) -> None:
    shapes = ["--shape", "length=40", "--shape", "length=8,batch=3,offset=4,ratio=1,topk=5"]
    result = run_command(*shapes, "--rival", "torch", "--rival", "nemo", "--json", "--record", "record.json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["results"]["one"]
    assert [*found] == ["spec", "seed", "rivals", "no_energy", "target", "timings", "skipped"]
    record = (project / "record.json").read_text()
    assert found == json.loads(record)["bench"]
    jsonschema.validate(json.loads(record), SCHEMA)
    assert record.count("\n") < 40 + len(found["timings"]) + len(found["skipped"])
    measured = [field.name for field in fields(Timing) if field.name != "shape"]
    again = read_contest(found)
    assert [[getattr(timing, name) for name in measured] for timing in again.timings] == [
        [row[name] for name in measured] for row in found["timings"]
    ]
    assert [skip.reason for skip in again.skips] == [row["reason"] for row in found["skipped"]]
    assert found["rivals"]["torch"] == RIVALS["torch"].version
    assert [entry["reason"] for entry in found["skipped"]] == ["nemo_automodel is not installed"] * 2
    timed = {(entry["length"], entry["batch"], entry["keys"], entry["topk"]) for entry in found["timings"]}
    assert timed == {(40, 1, 10, 8), (8, 3, 12, 5)}
    (forward,) = (t for t in found["timings"] if (t["task"], t["who"], t["length"]) == ("forward", "torch", 40))
    assert forward["of_v4gen"] > 0 and forward["of_matmul"] > 0 and forward["of_roofline"] > 0


def test_records_of_earlier_versions_are_read() -> None:
    records = [json.loads(path.read_bytes()) for path in (ROOT / "docs" / "records").glob("*.json")]
    of_benchmarks = [record for record in records if "bench" in record]
    assert len(of_benchmarks) >= 2
    for record in of_benchmarks:
        check_record(record)


def check_record(record: Any) -> None:
    jsonschema.validate(record, SCHEMA)
    contest = read_contest(record["bench"])
    assert len(contest.timings) == len(record["bench"]["timings"])
    assert all(contest.find(timing.task, timing.who, timing.shape) is timing for timing in contest.timings)


def test_tasks_and_doubled_lengths(project: Path) -> None:
    tasks = ["--task", "forward", "--task", "forward+backward"]
    result = run_command("--lengths", "8:40", *tasks, "--rival", "torch", "--json", "--sustained", "0.001")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["results"]["one"]
    assert {row["length"] for row in found["timings"]} == {8, 16, 32}
    assert {row["task"] for row in found["timings"]} == {MATMUL, COPY, "forward", "forward+backward"}
    assert all(row["sustained_ms"] > 0 and row["energy_mj"] == 0 for row in found["timings"])
    assert found["no_energy"] == "a CPU's is not measured"


def test_the_record_names_the_target_that_ran(project: Path) -> None:
    result = run_command("--target", "cpu", "--record", "record.json")
    assert result.exit_code == 0, result.output
    assert json.loads((project / "record.json").read_text())["bench"]["target"] == "cpu"
    unknown = run_command("--target", "sm_80")
    assert unknown.exit_code == 2 and "its targets are cpu" in unknown.output


def test_what_was_measured_outlives_the_run(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench_shape = bench._bench_shape

    def until_the_second(*arguments: Any) -> Contest:
        if arguments[3].length == 8:
            raise KeyboardInterrupt
        return bench_shape(*arguments)

    monkeypatch.setattr(bench, "_bench_shape", until_the_second)
    result = run_command("--shape", "length=40", "--shape", "length=8", "--record", "record.json")
    assert result.exit_code != 0
    found = json.loads((project / "record.json").read_text())["bench"]
    assert {entry["length"] for entry in found["timings"]} == {40}


def test_each_shape_has_its_own_table_where_nothing_of_it_was_timed(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench_shape = bench._bench_shape

    def but_the_second(*arguments: Any) -> Contest:
        if arguments[3].length == 8:
            return Contest((), (Skip("forward", OURS, arguments[3], "too small"),))
        return bench_shape(*arguments)

    monkeypatch.setattr(bench, "_bench_shape", but_the_second)
    result = run_command(*(f"--shape=length={length}" for length in (40, 8, 16)), "--task", "forward")
    assert result.exit_code == 0, result.output
    assert [line.split("S=")[1].split()[0] for line in result.stdout.splitlines() if "S=" in line] == ["40", "8", "16"]
    alone = run_command("--shape", "length=8", "--record", "record.json")
    assert not (project / "record.json").exists()
    assert alone.exit_code == 2 and "nothing of `one` was timed: too small" in alone.stderr


def test_our_own_out_of_memory_is_a_skip(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*arguments: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(Answers, "forward", exhausted)
    result = run_command("--shape", "length=8", "--task", "forward", "--task", "scores", "--json")
    assert result.exit_code == 0, result.output
    (skip,) = json.loads(result.stdout)["results"]["one"]["skipped"]
    assert (skip["task"], skip["who"], skip["reason"]) == ("forward", OURS, "out of memory")


def test_a_drawn_seed_is_printed(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("v4gen.run.contest.DRAWN_LENGTHS", (16, 64))
    assert "shapes drawn with --seed 11\n" in run_command("--drawn", "2", "--seed", "11").stdout
    assert json.loads(run_command("--drawn", "2", "--json").stdout)["results"]["one"]["seed"] is not None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shape", "batch=2"], "length always"),
        (["--shape", "length=2,length=3"], "at most once"),
        (["--shape", "size=2,length=3"], "expected length=…, batch=…"),
        (["--shape", "length=-1"], "`-1` is no number"),
        (["--shape", "length=0"], "`length` is 0"),
        (["--seed", "1"], "say how many shapes to draw"),
        (["--lengths", f"{1 << 31}:{1 << 31}"], "`--lengths`: `length` is"),
        (["--accept", "specs/one.yaml", "--record", "new.json"], "`--accept` times nothing"),
        (["--lengths", "4096"], "expected two lengths"),
        (["--lengths", "64:8"], "the first not above the last"),
        (["--rival", "nobody"], "nobody"),
    ],
)
def test_bad_usage_is_2(project: Path, arguments: list[str], message: str) -> None:
    result = run_command(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.output.replace("│", " ").split())


def test_charts_are_drawn_of_what_was_timed(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[Path, str, Contest]] = []
    monkeypatch.setattr("v4gen.report.chart.write_charts", lambda *arguments: drawn.append(arguments))
    result = run_command("--lengths", "8:16", "--task", "forward", "--charts", "pictures")
    assert result.exit_code == 0, result.output
    ((folder, title, contest),) = drawn
    assert (folder, title) == (Path("pictures"), "one on cpu")
    assert [shape.length for shape in contest.shapes] == [8, 16]


def test_a_chart_that_would_be_empty_is_not_written(tmp_path: Path, spec: Spec) -> None:
    unknown = replace(timed(spec, 32, OURS, 1, "backward"), extra_mib=-1, bytes=0)
    assert [path.name for path in write_charts(tmp_path, "one", Contest((unknown,), ()))] == ["time.svg", "time.png"]


def timed(spec: Spec, length: int, who: str, milliseconds: float, task: str = "forward", **numbers: int) -> Timing:
    shape = Shape.of(spec, length=length, **numbers)
    times = (milliseconds, milliseconds, milliseconds)
    return Timing(task, who, shape, *times, flops=10**9, bytes=10**6, extra_mib=milliseconds)


def test_a_line_joins_shapes_that_differ_in_length_alone(spec: Spec) -> None:
    timings = [timed(spec, 64, "torch", 3), timed(spec, 32, OURS, 1), timed(spec, 64, OURS, 2)]
    contest = Contest((*timings, timed(spec, 64, OURS, 9, ratio=1)), ())
    usual = "batch 1, ratio 4, top-k 8"
    assert list(lines(contest, "forward", lambda timing: (timing.shape.length, timing.median_ms))) == [
        (OURS, usual, [(32, 1), (64, 2)]),
        ("torch", usual, [(64, 3)]),
        (OURS, "batch 1, ratio 1, top-k 8", [(64, 9)]),
    ]


def test_equal_timings_give_equal_charts(tmp_path: Path, spec: Spec) -> None:
    ceilings = [timed(spec, length, "torch", 1, task) for length in (32, 64) for task in (MATMUL, COPY)]
    contestants = [timed(spec, length, who, length) for length in (32, 64) for who in (OURS, "torch")]
    contest = Contest((*ceilings, *contestants), ())
    for folder in ("a", "b"):
        written = write_charts(tmp_path / folder, "one on cpu", contest, source="record 1234")
        assert [path.stem for path in written[::2]] == ["time", "roofline", "memory"]
    for path in written:
        assert path.read_bytes() == (tmp_path / "a" / path.name).read_bytes()
        assert b"record 1234" in path.read_bytes()
    assert "matrix product" in (tmp_path / "a" / "roofline.svg").read_text()


def test_lengths_without_a_key_are_not_drawn(spec: Spec) -> None:
    with pytest.raises(ValueError, match="no length to 65535 has a key"):
        drawn_shapes(spec.model_copy(update={"compress_ratio": 1 << 16}), 1, 0)
