"""Whose file it is: the one decision that `check` reports by and `generate` writes by."""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path

from v4gen.diagnostic import Diagnostic, DiagnosticError, Severity
from v4gen.digest import digest_text
from v4gen.emit.package import MARKER

# A generated file says so above its docstring.
HEADER_LINES = 5


class Standing(Enum):
    """What stands where a file is due."""

    ABSENT = "nothing"
    DUE = "the very text that is due; its line endings do not count"
    OURS = "v4gen's own output, safe to replace"
    EDITED = "v4gen's output, changed since by hand"
    FOREIGN = "something that v4gen did not put there"


def standing(path: Path, due: str | None, locked: str | None) -> Standing:
    """Whose the file at `path` is, when `due` is the text to be there (None: no file).

    `locked` is the digest of what v4gen last emitted there. Without one, in a folder that is being adopted, the header
    decides: v4gen's own is believed, and an empty file is nobody's loss.
    """
    if not os.path.lexists(path):
        return Standing.ABSENT
    text = read_text(path)
    if text is not None and text == due:
        return Standing.DUE
    if text is None or path.is_symlink() or not path.is_file():
        return Standing.FOREIGN
    if locked is not None:
        return Standing.OURS if digest_text(text) == locked else Standing.EDITED
    return Standing.OURS if not text or is_generated(path) else Standing.FOREIGN


def read_text(path: Path) -> str | None:
    """The file's text with LF line ends, undecodable bytes replaced; None where there is no such file.

    Raises DiagnosticError when there is one that cannot be read.
    """
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as error:
        problem = f"cannot read `{path.as_posix()}`: {error.strerror}"
        raise DiagnosticError([Diagnostic(Severity.ERROR, "unreadable", problem)]) from error
    return data.decode("utf-8", errors="replace").replace("\r\n", "\n")


def is_generated(path: Path) -> bool:
    """Whether the head of the file says that v4gen made it."""
    return MARKER in "".join((read_text(path) or "").splitlines(keepends=True)[:HEADER_LINES])
