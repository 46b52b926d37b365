"""Changes as a patch that `git apply` takes."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Sequence
from io import StringIO
from pathlib import Path

from v4gen.diagnostic import Diagnostic, DiagnosticError, Severity
from v4gen.emit.write import Change


def render_patch(changes: Sequence[Change], root: Path) -> bytes:
    """`changes` as one patch, to be applied in the folder `root`.

    It is made from the bytes on disk: a checkout with CRLF gets lines that end so, and bytes that are no text come
    through. Raises DiagnosticError when a file is not below `root`.
    """
    return "".join(part for change in changes for part in _file_patch(change, root)).encode("utf-8", "surrogateescape")


def _file_patch(change: Change, root: Path) -> Iterator[str]:
    name = _relative(change.path, root)
    found = change.path.read_bytes().decode("utf-8", "surrogateescape") if change.path.is_file() else None
    due = change.text
    if due is not None and found is not None and "\r\n" in found:
        due = due.replace("\n", "\r\n")
    if due == found:
        return
    yield f"diff --git a/{name} b/{name}\n"
    if found is None:
        yield "new file mode 100644\n"
    elif due is None:
        yield f"deleted file mode {'100755' if os.access(change.path, os.X_OK) else '100644'}\n"
    # After a name with a space, a tab tells where it ends.
    end = "\t" if " " in name else ""
    old = "/dev/null" if found is None else f"a/{name}{end}"
    new = "/dev/null" if due is None else f"b/{name}{end}"
    yield from _hunks(_lines(found or ""), _lines(due or ""), old, new)


def _relative(path: Path, root: Path) -> str:
    try:
        return path.resolve().relative_to(root.resolve()).as_posix()
    except ValueError as error:
        problem = f"`{path.as_posix()}` is outside the project, and a patch cannot reach it"
        raise DiagnosticError([Diagnostic(Severity.ERROR, "bad-usage", problem)]) from error


def _lines(text: str) -> list[str]:
    return list(StringIO(text, newline="\n"))


def _hunks(found: list[str], due: list[str], old: str, new: str) -> Iterator[str]:
    for line in difflib.unified_diff(found, due, old, new):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
