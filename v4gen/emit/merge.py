"""Three-way merges: an edit by hand carried over to new output, through `git merge-file`.

The base is the text that v4gen emitted before the edit, known by its digest in the lock. Once merged, that text is kept
beside the file as `.<name>.base`, to be committed with it: the next merge has it on every clone. Before the first merge
it is found in the history of git, where the file was committed as it was emitted.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from v4gen.diagnostic import Diagnostic, DiagnosticError, Severity, Span
from v4gen.digest import digest_text
from v4gen.emit.standing import read_text

_HISTORY = 200  # commits of one file to look through
_MOST_CONFLICTS = 127  # above it, the exit code of `git merge-file` is an error's


@dataclass(frozen=True)
class Merged:
    """The text of both sides together; with `conflicts`, some of it between git's markers."""

    text: str
    conflicts: int


def base_path(path: Path) -> Path:
    """Where the base of an edited file is kept."""
    return path.with_name(f".{path.name}.base")


def is_base(path: Path) -> bool:
    """Whether `path` is where a base is kept."""
    return path.name.startswith(".") and path.suffix == ".base"


def merge(path: Path, due: str, locked: str) -> Merged:
    """The edited file at `path` brought up to `due`; `locked` is the digest of what it was edited from.

    Raises DiagnosticError where that text is nowhere to be found, or git is not there.
    """
    mine = read_text(path) or ""
    if digest_text(due) == locked:
        return Merged(mine, 0)  # nothing new to merge
    base = next((text for text in _known_texts(path) if digest_text(text) == locked), None)
    if base is None:
        hint = "commit generated files before editing them; `--force` gives up the edit"
        message = "the text that this file was edited from is not beside it nor in the history of git"
        raise DiagnosticError([Diagnostic(Severity.ERROR, "no-base", message, Span(path.as_posix(), 1, 1), hint=hint)])
    return _merge_file(mine, base, due)


def _known_texts(path: Path) -> Iterator[str]:
    if kept := read_text(base_path(path)):
        yield kept
    listed = _git("-C", str(path.parent), "log", f"--max-count={_HISTORY}", "--format=%H", "--", f"./{path.name}")
    for commit in listed.stdout.decode().split() if listed.returncode == 0 else ():
        shown = _git("-C", str(path.parent), "show", f"{commit}:./{path.name}")
        if shown.returncode == 0:
            yield shown.stdout.decode("utf-8", errors="replace").replace("\r\n", "\n")


def _merge_file(mine: str, base: str, due: str) -> Merged:
    with tempfile.TemporaryDirectory(prefix="v4gen-") as folder:
        sides = {"edited": mine, "emitted before": base, "emitted now": due}
        names = [str(Path(folder) / str(number)) for number in range(len(sides))]
        for name, text in zip(names, sides.values(), strict=True):
            Path(name).write_bytes(text.encode("utf-8"))
        labels = [part for label in sides for part in ("-L", label)]
        done = _git("merge-file", "--stdout", "--diff3", *labels, *names)
    if not 0 <= done.returncode <= _MOST_CONFLICTS:
        raise _failure(f"`git merge-file` failed: {done.stderr.decode(errors='replace').strip()}")
    return Merged(done.stdout.decode("utf-8"), done.returncode)


def _git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(["git", *arguments], capture_output=True, check=False)
    except OSError as error:
        raise _failure("`--merge` needs git, which is not there") from error


def _failure(message: str) -> DiagnosticError:
    return DiagnosticError([Diagnostic(Severity.ERROR, "merge-failed", message)])
