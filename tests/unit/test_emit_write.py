"""Writing a package: atomic, only what changed, and never over what v4gen did not make."""

import os
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType

import pytest

from v4gen.diagnostic import DiagnosticError
from v4gen.emit.package import MARKER, Package
from v4gen.emit.write import write_package

OLD, NEW = (f'# {MARKER}\n"""{word}."""\n' for word in ("Old", "New"))


def package(text: str = NEW) -> Package:
    return Package("p", MappingProxyType({"a.py": text, "b.py": f"# {MARKER}\nB = '−'\n", "py.typed": ""}))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def due(text: str = NEW) -> dict[str, bytes]:
    return {path: text.encode() for path, text in package(text).files.items()}


def test_a_package_is_written_whole_into_a_new_folder(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "p"
    assert write_package(package(), folder) == (folder / "a.py", folder / "b.py", folder / "py.typed")
    assert contents(folder) == due()


def test_only_what_changed_is_written(tmp_path: Path) -> None:
    write_package(package(OLD), tmp_path)
    for path in tmp_path.iterdir():
        os.utime(path, ns=(10**18, 10**18))
    before = {path.name: (path.stat().st_mtime_ns, path.stat().st_ino) for path in tmp_path.iterdir()}
    assert write_package(package(NEW), tmp_path) == (tmp_path / "a.py",)
    after = {path.name: (path.stat().st_mtime_ns, path.stat().st_ino) for path in tmp_path.iterdir()}
    assert {name for name in after if after[name] != before[name]} == {"a.py"}
    assert write_package(package(NEW), tmp_path) == ()


def test_line_ends_are_made_right(tmp_path: Path) -> None:
    write_package(package(), tmp_path)
    (tmp_path / "a.py").write_bytes(NEW.replace("\n", "\r\n").encode())
    assert write_package(package(), tmp_path) == (tmp_path / "a.py",)
    assert contents(tmp_path) == due()


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_files_are_as_readable_as_the_umask_says(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        write_package(package(), tmp_path)
        assert os.umask(umask) == umask
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o666 & ~umask}


@pytest.mark.parametrize("failing", ["replace", "chmod"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_the_old_file_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, error: BaseException
) -> None:
    write_package(package(OLD), tmp_path)

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(Path, failing, fail)
    with pytest.raises((DiagnosticError, KeyboardInterrupt)) as caught:
        write_package(package(NEW), tmp_path)
    assert contents(tmp_path) == due(OLD)
    if isinstance(caught.value, DiagnosticError):
        (fault,) = caught.value.diagnostics
        assert fault.code == "cannot-write" and "No space left on device" in fault.message


def _foreign_text(path: Path) -> None:
    path.write_text("mine = 1\n", encoding="utf-8")


def _marker_far_down(path: Path) -> None:
    path.write_text(f"mine = 1\n{'#' * 80}\n\n\n\n\n# {MARKER}\n", encoding="utf-8")


def _binary(path: Path) -> None:
    path.write_bytes(b"\xff\xfe\x00\x01")


def _link_to_generated(path: Path) -> None:
    (path.parent / "elsewhere.py").write_text(OLD, encoding="utf-8")
    path.symlink_to("elsewhere.py")


def _dangling_link(path: Path) -> None:
    path.symlink_to("nowhere")


@pytest.mark.parametrize(
    "make", [_foreign_text, _marker_far_down, _binary, _link_to_generated, _dangling_link, Path.mkdir]
)
def test_what_v4gen_did_not_make_is_never_overwritten(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """Nor is anything else written then, the files before it in the package included."""
    make(tmp_path / "b.py")
    before = sorted((path.name, path.lstat().st_mtime_ns) for path in tmp_path.iterdir())
    with pytest.raises(DiagnosticError) as caught:
        write_package(package(), tmp_path)
    (fault,) = caught.value.diagnostics
    assert fault.code == "in-the-way" and fault.span and fault.span.file.endswith("/b.py")
    assert sorted((path.name, path.lstat().st_mtime_ns) for path in tmp_path.iterdir()) == before


def test_every_file_in_the_way_is_named_at_once(tmp_path: Path) -> None:
    for name in ("a.py", "b.py", "py.typed"):
        _foreign_text(tmp_path / name)
    with pytest.raises(DiagnosticError) as caught:
        write_package(package(), tmp_path)
    assert len(caught.value.diagnostics) == 3


def test_an_empty_file_and_a_neighbour_are_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "a.py").touch()
    _foreign_text(tmp_path / "mine.py")
    write_package(package(), tmp_path)
    assert contents(tmp_path) == due() | {"mine.py": b"mine = 1\n"}


def test_a_folder_that_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    folder.mkdir()
    folder.chmod(0o555)
    if os.access(folder, os.W_OK):
        folder.chmod(0o755)
        pytest.skip("this user may write anywhere")
    with pytest.raises(DiagnosticError) as caught:
        write_package(package(), folder)
    (fault,) = caught.value.diagnostics
    assert fault.code == "cannot-write" and folder.as_posix() in fault.message


def test_a_file_where_the_folder_should_be_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "p").write_text("a file\n", encoding="utf-8")
    with pytest.raises(DiagnosticError) as caught:
        write_package(package(), tmp_path / "p")
    (fault,) = caught.value.diagnostics
    assert fault.code == "cannot-write"
    assert (tmp_path / "p").read_text(encoding="utf-8") == "a file\n"
