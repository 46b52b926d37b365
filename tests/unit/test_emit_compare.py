"""Drift: what on disk is not what the specs give, shown as a diff."""

from pathlib import Path
from types import MappingProxyType

import pytest

from v4gen.emit.compare import Drift, compare, orphans
from v4gen.emit.package import MARKER, Package
from v4gen.emit.write import write_package

LINES = (f"# {MARKER}", '"""A module."""', "ONE = 1", "TWO = '−'", "", "THREE = 3")
TEXT = "\n".join(LINES) + "\n"


@pytest.fixture
def package() -> Package:
    return Package("p", MappingProxyType({"a.py": TEXT, "b.py": TEXT, "py.typed": ""}))


@pytest.fixture
def folder(package: Package, tmp_path: Path) -> Path:
    write_package(package, tmp_path / "p")
    return tmp_path / "p"


def test_a_written_package_has_no_drift(package: Package, folder: Path) -> None:
    assert compare(package, folder) == ()
    assert orphans([package], folder.parent) == ()


def test_line_ends_are_no_drift(package: Package, folder: Path) -> None:
    (folder / "a.py").write_bytes(TEXT.replace("\n", "\r\n").encode())
    assert compare(package, folder) == ()


@pytest.mark.parametrize("position", range(len(LINES)))
def test_a_deleted_line_shows_in_the_diff(package: Package, folder: Path, position: int) -> None:
    left = [*LINES[:position], *LINES[position + 1 :]]
    (folder / "b.py").write_text("\n".join(left) + "\n", encoding="utf-8")
    (drift,) = compare(package, folder)
    kind = (Drift.OUTDATED if LINES[position] else Drift.COSMETIC) if position else Drift.EDITED  # without its header
    assert (drift.path, drift.kind) == (folder / "b.py", kind)
    assert f"+{LINES[position]}" in drift.diff.splitlines()
    assert drift.diff.startswith(f"--- {folder.as_posix()}/b.py (on disk)\n+++ {folder.as_posix()}/b.py (generated)\n")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (TEXT[:-1], Drift.COSMETIC),
        (TEXT + "\n", Drift.COSMETIC),
        (TEXT.replace("ONE", "\u2028ONE"), Drift.OUTDATED),
        (TEXT.replace("1", "1 "), Drift.COSMETIC),
        (TEXT.replace("\n", "\r"), Drift.OUTDATED),
        ("", Drift.OUTDATED),
        ("\ufeff" + TEXT, Drift.OUTDATED),
    ],
    ids=[
        "no last newline",
        "one newline more",
        "line separator",
        "space",
        "carriage returns",
        "empty",
        "byte order mark",
    ],
)
def test_any_other_change_is_drift(package: Package, folder: Path, text: str, kind: Drift) -> None:
    (folder / "a.py").write_bytes(text.encode())
    (drift,) = compare(package, folder)
    assert drift.kind is kind
    assert drift.diff.endswith("\n") and drift.diff.count("\n") > 2


def test_only_a_missing_newline_is_called_missing(package: Package, folder: Path) -> None:
    (folder / "a.py").write_text(TEXT[:-1], encoding="utf-8")
    (drift,) = compare(package, folder)
    assert drift.diff.count("\\ No newline at end of file") == 1
    (folder / "a.py").write_text(TEXT.replace("ONE", "\u2028ONE"), encoding="utf-8")
    (drift,) = compare(package, folder)
    assert "\\ No newline at end of file" not in drift.diff


def test_bytes_that_are_no_text_are_drift(package: Package, folder: Path) -> None:
    (folder / "a.py").write_bytes(TEXT.encode() + b"\xff\n")
    (drift,) = compare(package, folder)
    assert drift.kind is Drift.OUTDATED and "-\ufffd" in drift.diff


@pytest.mark.parametrize("name", ["a.py", "py.typed"])
def test_a_missing_file_is_drift_even_if_it_would_be_empty(package: Package, folder: Path, name: str) -> None:
    (folder / name).unlink()
    (drift,) = compare(package, folder)
    assert (drift.path.name, drift.kind) == (name, Drift.MISSING)
    assert all(f"+{line}" in drift.diff.splitlines() for line in (LINES if name == "a.py" else ()))


def test_a_package_that_is_not_there_is_missing_file_by_file(package: Package, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "nowhere", tmp_path / "file"):
        assert [drift.kind for drift in compare(package, folder)] == [Drift.MISSING] * 3


def test_a_generated_file_that_no_spec_gives_is_an_orphan(package: Package, folder: Path) -> None:
    (folder / "old_module.py").write_text(TEXT, encoding="utf-8")
    (folder / "mine.py").write_text("mine = 1\n", encoding="utf-8")
    gone = folder.parent / "gone"
    gone.mkdir()
    (gone / "a.py").write_bytes(TEXT.replace("\n", "\r\n").encode())
    (folder.parent / "__init__.py").write_text('"""Not generated."""\n', encoding="utf-8")
    found = orphans([package], folder.parent)
    assert [(drift.path.relative_to(folder.parent).as_posix(), drift.kind) for drift in found] == [
        ("gone/a.py", Drift.ORPHAN),
        ("p/old_module.py", Drift.ORPHAN),
    ]
    assert all(f"-{line}" in drift.diff.splitlines() for drift in found for line in LINES)


def test_drift_as_data(package: Package, folder: Path) -> None:
    (folder / "a.py").unlink()
    (drift,) = compare(package, folder)
    assert drift.as_data() == {
        "path": (folder / "a.py").as_posix(),
        "kind": "missing",
        "line": 1,
        "reason": "",
        "effect": None,
        "diff": drift.diff,
    }
