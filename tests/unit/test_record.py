"""The record says what ran, on what, and every number; its table and JSON say the same."""

import hashlib
import io
import json
import math
import platform
from pathlib import Path

import pytest
from rich.console import Console

from v4gen.diagnostic import DiagnosticError
from v4gen.report.validation import render_table, to_json
from v4gen.run.evidence import CaseResult, Measurement, Validation
from v4gen.run.record import make_record, package_digests, write_record

GOOD = CaseResult("good", "B=1", (Measurement("scores", 2.0**-20, 2.0**-13), Measurement("dq", 0, 0)), 0.5)
BAD = CaseResult("bad", "B=2", (Measurement("scores", math.inf, 1e-4, "at [0, 1]: inf"),), 0.25)
CRASHED = CaseResult("crashed", "B=3", (), 0.25, error="RuntimeError: [bold] out of memory")
VALIDATION = Validation("tiny", "cpu", (GOOD, BAD, CRASHED))


@pytest.fixture
def package(tmp_path: Path) -> Path:
    directory = tmp_path / "tiny"
    directory.mkdir()
    (directory / "b.py").write_bytes(b"b = 1\r\n")
    (directory / "a.py").write_bytes(b"a = 1\n")
    (directory / "py.typed").write_bytes(b"")
    (directory / "notes.txt").write_bytes(b"not code")
    return directory


def test_digests_ignore_line_endings(package: Path) -> None:
    digests = package_digests(package)
    assert list(digests) == ["a.py", "b.py", "py.typed"]
    assert digests["b.py"] == hashlib.sha256(b"b = 1\n").hexdigest()


def test_a_record_is_complete(package: Path, tmp_path: Path) -> None:
    command = ["v4gen", "validate", "tiny.yaml"]
    record = make_record("validation", VALIDATION.as_data(), VALIDATION.device, package, command)
    assert list(record) == ["record", "command", "machine", "toolchain", "files", "validation"]
    assert record["command"] == ["v4gen", "validate", "tiny.yaml"]
    assert record["machine"]["device"] == "cpu"
    assert record["machine"]["cpu"]
    assert list(record["toolchain"]) == ["python", "torch", "tilelang", "apache-tvm-ffi"]
    assert record["toolchain"]["python"] == platform.python_version()
    assert [case["name"] for case in record["validation"]["cases"]] == ["good", "bad", "crashed"]
    assert record["validation"]["cases"][1]["measurements"][0]["error"] == "inf"
    path = tmp_path / "records" / "tiny.json"
    write_record(path, record)
    assert json.loads(path.read_text(encoding="utf-8")) == record
    assert list(path.parent.iterdir()) == [path]


def test_a_record_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write_record(path, {"record": 1})
    (tmp_path / "folder").mkdir()
    with pytest.raises(DiagnosticError, match="folder"):
        write_record(tmp_path / "folder", {"record": 2})
    with pytest.raises(ValueError, match="JSON"):
        write_record(path, {"record": math.nan})
    assert path.read_text(encoding="utf-8") == '{\n  "record": 1\n}\n'
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["folder", "record.json"]


def test_json_holds_every_number() -> None:
    data = json.loads(to_json(VALIDATION))
    assert data["passed"] is False
    assert data["seconds"] == 1
    assert data["cases"][0]["measurements"] == [
        {"name": "scores", "passed": True, "error": 2.0**-20, "bound": 2.0**-13, "margin": 128.0, "where": ""},
        {"name": "dq", "passed": True, "error": 0, "bound": 0, "margin": "inf", "where": ""},
    ]


def test_the_table_shows_error_bound_and_margin() -> None:
    console = Console(width=120, file=io.StringIO())
    with console.capture() as captured:
        console.print(render_table(VALIDATION))
    text = captured.get()
    assert "1e-06 / 1e-04" in text
    assert "exact" in text
    assert "scores: smallest margin 0 (error inf, bound 1.00e-04, in `bad`)" in text
    assert "scores: error inf, bound 0.0001 at [0, 1]: inf" in text
    assert "RuntimeError: [bold] out of memory" in text
    assert "3 cases, 3 checks: 2 failed in 1.0 s" in text
