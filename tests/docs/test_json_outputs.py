"""The JSON documents have the keys that the guide lists."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from v4gen.cli import COMMANDS, main

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `([a-z]+)` \| ((?:`\w+`(?:, )?)+) \|$", TEXT, re.MULTILINE)
KEYS = {command: re.findall(r"\w+", keys) for command, keys in ROWS}

SPEC = "schema: v4gen/1\nname: one\nheads: 4\ndim: 32\ntopk: 8\ncompress_ratio: 4\ntargets: [cpu, sm_90a]\n"
# Those that run kernels are tested where kernels run.
COMMAND_LINES = {
    "generate": ["generate"],
    "check": ["check"],
    "explain": ["explain", "specs/one.yaml"],
    "diff": ["diff"],
    "init": ["init", "two", "--from", "tiny"],
    "list": ["list"],
    "vendor": ["vendor", ".", "specs/one.yaml"],
    "doctor": ["doctor"],
    "clean": ["clean", "--dry-run"],
}


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "one.yaml").write_text(SPEC)
    monkeypatch.chdir(tmp_path)
    CliRunner().invoke(main, ["generate"])


def document(*arguments: str) -> Any:
    return json.loads(CliRunner().invoke(main, [*arguments, "--json"]).stdout)


@pytest.mark.parametrize("command", COMMAND_LINES)
def test_the_document_of(command: str) -> None:
    assert [*document(*COMMAND_LINES[command])] == KEYS[command]


def test_every_command_with_json_is_listed() -> None:
    with_json = {name for name in COMMANDS if "--json" in CliRunner().invoke(main, [name, "--help"]).stdout}
    assert set(KEYS) == with_json


def test_a_failure_has_diagnostics_alone() -> None:
    failed = document("list", "absent.yaml")
    assert [*failed] == ["diagnostics"]
    assert [*failed["diagnostics"][0]] == ["file", "line", "column", "severity", "code", "message", "hint"]


def test_what_explain_is_made_of() -> None:
    (target, *_) = document("explain", "specs/one.yaml", "--target", "sm_90a")["targets"]
    assert [*target] == [
        "target",
        "devices",
        "shared_memory",
        "kernels",
        "selection",
        "costs",
        "peak",
        "chunk_queries",
    ]
    assert {"picked", "reasons", "candidates"} <= set(target["kernels"][0])
    assert [*target["kernels"][0]["candidates"][0]] == ["sizes", "usage", "limit", "outcome"]
    assert [*target["costs"][0]] == ["step", "flops", "bytes", "cache_bytes", "floor_ms", "bound"]
