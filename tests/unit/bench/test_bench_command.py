"""The command line, its record and its chart."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from v4gen.cli import main
from v4gen.read.spec import Spec
from v4gen.report.chart import lines, write_chart
from v4gen.run import bench
from v4gen.run.bench import OURS, Contest, Timing
from v4gen.run.contest import Shape
from v4gen.run.rivals import RIVALS


def run_command(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["bench", *arguments])


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_runs: None) -> Path:
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "one.yaml").write_text(
        "schema: v4gen/1\nname: one\nheads: 4\ndim: 32\ntopk: 8\ncompress_ratio: 4\nlayout: BSHD\ntargets: [cpu]\n"
    )
    (tmp_path / "generated" / "one").mkdir(parents=True)
    (tmp_path / "generated" / "one" / "__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("v4gen.cli.bench.require_runtime", lambda device: None)
    return tmp_path


def test_one_record_of_many_shapes(project: Path) -> None:
    shapes = ["--shape", "length=40", "--shape", "length=8,batch=3,offset=4,ratio=1,topk=5"]
    result = run_command(*shapes, "--rival", "torch", "--rival", "nemo", "--json", "--record", "record.json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["results"]["one"]
    assert [*found] == ["seed", "rivals", "timings", "skipped"]
    assert found == json.loads((project / "record.json").read_text())["bench"]
    assert found["rivals"]["torch"] == RIVALS["torch"].version
    assert [entry["reason"] for entry in found["skipped"]] == ["nemo_automodel is not installed"] * 2
    timed = {(entry["length"], entry["batch"], entry["keys"], entry["topk"]) for entry in found["timings"]}
    assert timed == {(40, 1, 10, 8), (8, 3, 12, 5)}
    (forward,) = (t for t in found["timings"] if (t["task"], t["who"], t["length"]) == ("forward", "torch", 40))
    assert forward["of_v4gen"] > 0 and forward["of_matmul"] > 0


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
        (["--chart", "x.pdf"], "let it end in .svg or .png"),
        (["--rival", "nobody"], "nobody"),
    ],
)
def test_bad_usage_is_2(project: Path, arguments: list[str], message: str) -> None:
    result = run_command(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.output.replace("│", " ").split())


def test_a_line_joins_shapes_that_differ_in_length_alone(tmp_path: Path, spec: Spec) -> None:
    def timed(length: int, who: str, milliseconds: float, **numbers: int) -> Timing:
        shape = Shape.of(spec, length=length, **numbers)
        return Timing("forward", who, shape, milliseconds, milliseconds, milliseconds, 0, 0, -1)

    timings = [timed(64, "torch", 3), timed(32, OURS, 1), timed(64, OURS, 2), timed(64, OURS, 9, ratio=1)]
    contest = Contest(tuple(timings), ())
    usual = "batch 1, ratio 4, top-k 8"
    assert list(lines(contest)) == [
        (OURS, usual, [(32, 1), (64, 2)]),
        ("torch", usual, [(64, 3)]),
        (OURS, "batch 1, ratio 1, top-k 8", [(64, 9)]),
    ]
    for name in ("a.svg", "b.svg"):
        write_chart(tmp_path / name, "one on cpu", contest)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert f"v4gen, {usual}" in (tmp_path / "a.svg").read_text()
