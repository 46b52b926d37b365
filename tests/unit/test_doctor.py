"""`doctor` holds what is installed against what v4gen's own metadata requires, and imports none of it."""

import json
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from click.testing import CliRunner

from v4gen.cli import main
from v4gen.run import doctor
from v4gen.run.doctor import BASE, RUN, Finding, base_is_whole, examine

REQUIRED = [
    "click>=8.1",
    "ruff==0.17.6",
    'torch>=2.6; extra == "run"',
    "apache-tvm-ffi<0.1.13; extra == 'run'",
    'mkdocs-material>=9.5; extra == "docs"',
]


def examined(monkeypatch: pytest.MonkeyPatch, installed: dict[str, str]) -> dict[str, Finding]:
    def version(name: str) -> str:
        if name not in installed:
            raise PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(doctor, "requires", lambda _: REQUIRED)
    monkeypatch.setattr(doctor, "version", version)
    return {finding.name: finding for finding in examine()}


GOOD = {"v4gen": "0.1.0", "click": "8.1.0", "ruff": "0.17.6", "torch": "2.6.0+cpu", "apache-tvm-ffi": "0.1.12.post1"}


def test_all_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    found = examined(monkeypatch, GOOD)
    assert all(found[name].ok and found[name].hint is None for name in GOOD)
    assert (found["click"].needed_for, found["torch"].needed_for) == (BASE, RUN)
    assert "mkdocs-material" not in found
    assert base_is_whole(tuple(found.values()))


@pytest.mark.parametrize(
    ("package", "version", "hint"),
    [
        ("click", None, "pip install 'v4gen' brings click>=8.1"),
        ("click", "8.0.9", "pip install 'v4gen' brings click>=8.1"),
        ("ruff", "0.17.7", "pip install 'v4gen' brings ruff==0.17.6"),
        ("torch", "2.5.1", "pip install 'v4gen[run]' brings torch>=2.6"),
        ("torch", None, "pip install 'v4gen[run]' brings torch>=2.6"),
        ("apache-tvm-ffi", "0.1.13", "pip install 'v4gen[run]' brings apache-tvm-ffi<0.1.13"),
    ],
)
def test_what_is_missing_or_of_another_version(
    monkeypatch: pytest.MonkeyPatch, package: str, version: str | None, hint: str
) -> None:
    installed = {name: found for name, found in {**GOOD, package: version}.items() if found}
    found = examined(monkeypatch, installed)
    assert (found[package].ok, found[package].version, found[package].hint) == (False, version, hint)
    assert base_is_whole(tuple(found.values())) == (package not in ("click", "ruff"))


def test_tools_that_are_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("gcc", "GPU"):
        found = {finding.name: finding for finding in examine()}[name]
        assert not found.ok and found.version is None and found.hint
    assert base_is_whole(examine())


def test_a_tool_that_fails_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "nvidia-smi"
    broken.write_text("#!/bin/sh\necho no devices >&2\nexit 9\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert not {finding.name: finding for finding in examine()}["GPU"].ok


def test_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    result = CliRunner().invoke(main, ["doctor"])
    assert result.exit_code == 0 and "python" in result.stdout
    data = json.loads(CliRunner().invoke(main, ["doctor", "--json"]).stdout)
    assert data["ok"] is True
    assert [*data["findings"][0]] == ["name", "needed_for", "version", "ok", "hint"]
    examined(monkeypatch, {name: found for name, found in GOOD.items() if name != "ruff"})
    assert CliRunner().invoke(main, ["doctor"]).exit_code == 2


def test_it_loads_nothing_that_it_looks_for() -> None:
    code = "from v4gen.run.doctor import examine; examine(); import sys; print([*sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "tilelang", "tvm_ffi", "numpy"} & {name.strip("[]' \n") for name in done.stdout.split(",")}
