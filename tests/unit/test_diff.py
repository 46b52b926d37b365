"""`diff` shows what `generate` would change: it applies as a patch, ends with 0, and writes nothing."""

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from v4gen.cli import main
from v4gen.report.diff import colored_diff

SPEC = "schema: v4gen/1\nname: one\nheads: 4\ndim: 32\ntopk: 8\ncompress_ratio: 4\ntargets: [cpu]\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "one.yaml").write_text(SPEC)
    monkeypatch.chdir(tmp_path)
    assert run("generate").exit_code == 0
    return tmp_path


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(main, [*arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def snapshot(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_nothing_to_do_is_an_empty_diff(project: Path) -> None:
    result = run("diff")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
    assert json.loads(run("diff", "--json").stdout) == {"drift": []}


def test_a_changed_spec_shows_what_would_change_and_changes_nothing(project: Path) -> None:
    (project / "specs" / "one.yaml").write_text(SPEC.replace("topk: 8", "topk: 9"))
    before = snapshot(project)
    result = run("diff")
    assert result.exit_code == 0
    assert {"-TOPK = 8", "+TOPK = 9"} <= set(result.stdout.splitlines())
    assert "\033" not in result.stdout
    assert snapshot(project) == before
    (first, *_) = json.loads(run("diff", "--json").stdout)["drift"]
    assert first["path"] == "generated/one/__init__.py" and "top 9" in first["diff"]


def test_it_is_what_generate_does(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    (project / "specs" / "one.yaml").write_text(SPEC.replace("topk: 8", "topk: 9"))
    patch = tmp_path_factory.mktemp("patch") / "changes.patch"
    patch.write_text(run("diff").stdout.replace(" (on disk)", "").replace(" (generated)", ""))
    applied = subprocess.run(["git", "apply", "-p0", str(patch)], cwd=project, capture_output=True, text=True)
    assert applied.returncode == 0, applied.stderr
    patched = {path: data for path, data in snapshot(project).items() if path.suffix == ".py"}
    run("generate")
    assert patched == {path: data for path, data in snapshot(project).items() if path.suffix == ".py"}


def test_an_edited_file_is_told_of(project: Path) -> None:
    path = project / "generated" / "one" / "reference.py"
    path.write_text(path.read_text() + "edited = True\n")
    result = run("diff")
    assert result.exit_code == 0
    assert "-edited = True" in result.stdout.splitlines()
    assert "reference.py was edited by hand" in result.stderr


def test_a_bad_spec_is_2(project: Path) -> None:
    (project / "specs" / "one.yaml").write_text(SPEC.replace("heads: 4", "heads: no"))
    assert run("diff").exit_code == 2


DIFF = "--- a.py (on disk)\n+++ a.py (generated)\n@@ -1,2 +1,2 @@\n same\n--- a comment\n+++ b\n"


def test_colours_mark_lines_and_leave_the_text() -> None:
    colored = colored_diff(DIFF)
    assert strip(colored) == DIFF
    header, _, hunk, same, removed, added, end = colored.split("\n")
    assert header.startswith("\033[1m") and hunk.startswith("\033[36m@@") and same == " same" and end == ""
    assert removed.startswith("\033[31m---") and added.startswith("\033[32m+++")


def test_a_form_feed_ends_no_line() -> None:
    colored = colored_diff("--- a\n+++ a\n@@ -0,0 +1 @@\n+x\f-y\n")
    assert "\033[32m+x\f-y\033[0m" in colored


def test_no_diff_has_no_colours() -> None:
    assert colored_diff("") == ""


@pytest.mark.parametrize("no_color", [True, False])
def test_colours_are_for_terminals_and_no_color_is_honoured(
    project: Path, monkeypatch: pytest.MonkeyPatch, no_color: bool
) -> None:
    (project / "specs" / "one.yaml").write_text(SPEC.replace("topk: 8", "topk: 9"))
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda self: True, raising=False)
    monkeypatch.setenv("NO_COLOR", "1" if no_color else "")
    result = CliRunner().invoke(main, ["diff"], color=True)
    assert ("\033[32m+TOPK = 9\033[0m" in result.stdout) == (not no_color)


def strip(text: str) -> str:
    from click import unstyle

    return unstyle(text)
