"""Hold packages against what is on disk."""

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from io import StringIO
from pathlib import Path
from typing import Any

from v4gen.emit.package import MARKER, Package

# A generated file says so above its docstring.
HEADER_LINES = 5


class Drift(StrEnum):
    """How a file on disk departs from what the specs give."""

    MISSING = "missing"
    CHANGED = "changed"
    ORPHAN = "orphan"  # generated once, by a spec that is gone


@dataclass(frozen=True)
class FileDrift:
    """One file that is not what the specs give; `diff` is unified, from the file on disk to the text due."""

    path: Path
    kind: Drift
    diff: str

    def as_data(self) -> dict[str, Any]:
        """JSON-ready data, keys in a fixed order."""
        return {"path": self.path.as_posix(), "kind": str(self.kind), "diff": self.diff}


def compare(package: Package, folder: Path) -> tuple[FileDrift, ...]:
    """Every file of `package` that is missing from `folder` or differs there; line endings do not count."""
    found = (_compare_file(folder / path, text) for path, text in sorted(package.files.items()))
    return tuple(drift for drift in found if drift)


def orphans(packages: Sequence[Package], output: Path) -> tuple[FileDrift, ...]:
    """Files below `output` that v4gen generated and that none of `packages` holds."""
    due = {output / package.name / path for package in packages for path in package.files}
    return tuple(
        FileDrift(path, Drift.ORPHAN, _unified_diff(read_text(path) or "", "", path.as_posix()))
        for path in sorted(output.glob("*/*.py"))
        if path not in due and is_generated(path)
    )


def read_text(path: Path) -> str | None:
    """The file's text with LF line ends, undecodable bytes replaced; None where there is no such file."""
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    return data.decode("utf-8", errors="replace").replace("\r\n", "\n")


def is_generated(path: Path) -> bool:
    """Whether the head of the file says that v4gen made it."""
    return MARKER in "".join((read_text(path) or "").splitlines(keepends=True)[:HEADER_LINES])


def _compare_file(path: Path, due: str) -> FileDrift | None:
    found = read_text(path)
    if found == due:
        return None
    kind = Drift.MISSING if found is None else Drift.CHANGED
    return FileDrift(path, kind, _unified_diff(found or "", due, path.as_posix()))


def _unified_diff(found: str, due: str, path: str) -> str:
    return "".join(_diff_lines(_lines(found), _lines(due), path))


def _lines(text: str) -> list[str]:
    # Unlike str.splitlines: a form feed or a line separator is no line's end.
    return list(StringIO(text))


def _diff_lines(found: list[str], due: list[str], path: str) -> Iterator[str]:
    for line in difflib.unified_diff(found, due, f"{path} (on disk)", f"{path} (generated)"):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
