"""`[tool.v4gen]`: where specs and packages are."""

from __future__ import annotations

from pathlib import Path

import pytest

from v4gen.diagnostic import Diagnostic, DiagnosticError
from v4gen.project import Project, find_project


def project(root: Path, text: str) -> Project:
    (root / "pyproject.toml").write_bytes(text.encode())
    return find_project(root)


def faults(root: Path, text: str) -> tuple[Diagnostic, ...]:
    with pytest.raises(DiagnosticError) as caught:
        project(root, text)
    return caught.value.diagnostics


@pytest.mark.parametrize("text", ["", "[project]\nname = 'x'\n", "[tool.other]\n", "[tool.v4gen]\n"])
def test_defaults_hold_without_settings(tmp_path: Path, text: str) -> None:
    assert project(tmp_path, text) == Project(tmp_path, ("specs/*.yaml",), "generated")


def test_without_any_pyproject_the_start_is_the_root(tmp_path: Path) -> None:
    if any((parent / "pyproject.toml").exists() for parent in tmp_path.parents):
        pytest.skip("the temporary folder lies in a project")
    assert find_project(tmp_path).root == tmp_path


def test_settings_are_read_from_the_nearest_file_upward(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    deep = inner / "a" / "b"
    deep.mkdir(parents=True)
    project(tmp_path, "[tool.v4gen]\noutput = 'outer'\n")
    settings = '[tool.v4gen]\r\nspecs = ["models/*.yaml", "one.yaml"]\r\noutput = "src/kernels/"\r\n'
    expected = Project(inner, ("models/*.yaml", "one.yaml"), "src/kernels")
    assert project(inner, settings) == expected
    assert find_project(deep) == expected
    assert find_project(deep / "some.yaml") == expected


def test_spec_paths_are_sorted_and_distinct(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.yaml", "note.txt"):
        (tmp_path / name).touch()
    (tmp_path / "folder.yaml").mkdir()
    paths = Project(tmp_path, ("*.yaml", "a.yaml", "none/*.yaml")).spec_paths()
    assert [path.name for path in paths] == ["a.yaml", "b.yaml"]


def test_all_faults_come_at_once_and_point_at_their_line(tmp_path: Path) -> None:
    found = faults(tmp_path, '[project]\nname = "x"\n\n[tool.v4gen]\nspecs = []\nouput = "a"\n  output = "/abs"\n')
    assert sorted((fault.span.line, fault.span.column) for fault in found if fault.span) == [(5, 1), (6, 1), (7, 3)]
    assert {fault.code for fault in found} == {"bad-settings"}
    assert any(fault.hint == "did you mean `output`?" for fault in found)


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ('output = ""', "is no path"),
        ("output = 3", "must hold strings"),
        ('output = "../out"', "leaves the project"),
        ('output = "a/../../out"', "leaves the project"),
        ('output = "/out"', "not relative"),
        ('output = "C:/out"', "not relative"),
        ('output = "~/out"', "not relative"),
        ('output = "a\\\\b"', "backslash"),
        ('output = "a\\u0000b"', "is no path"),
        ('specs = "specs/*.yaml"', "must be a list"),
        ('specs = ["a.yaml", 1]', "must hold strings"),
        ('specs = ["/abs/*.yaml"]', "not relative"),
    ],
)
def test_malformed_settings(tmp_path: Path, setting: str, reason: str) -> None:
    (fault,) = faults(tmp_path, f"[tool.v4gen]\n{setting}\n")
    assert reason in fault.message
    assert fault.source_line == setting


def test_a_table_that_is_none(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, "[tool]\nv4gen = 3\n")
    assert fault.message == "`tool.v4gen` must be a table"
    assert fault.span is not None
    assert fault.span.line == 2


def test_bad_toml_points_at_the_place(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, "[project]\nname = \n")
    assert (fault.code, fault.source_line) == ("bad-toml", "name = ")
    assert fault.span is not None
    assert (fault.span.line, fault.span.column) == (2, 8)
    (tmp_path / "pyproject.toml").write_bytes(b"\xff")
    with pytest.raises(DiagnosticError, match="not valid UTF-8"):
        find_project(tmp_path)


def test_a_project_checks_itself() -> None:
    with pytest.raises(ValueError, match="at least one pattern"):
        Project(Path(), specs=())
    with pytest.raises(ValueError, match="leaves the project"):
        Project(Path(), output="..")
