"""One writer of an output folder at a time, and a note of what it is about to write, should it be killed.

Both are kept in the user's cache folder, under a name made from the output folder's path: nothing of it is in the tree.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from v4gen.diagnostic import Diagnostic, DiagnosticError, Severity
from v4gen.digest import digest_text

PATIENCE = 120  # seconds to wait for another process


@dataclass(frozen=True)
class Note:
    """The digests of texts that an unfinished run may have written, by path relative to the output folder.

    The lock is written last, so that after a kill it does not know them; they are v4gen's all the same.
    """

    path: Path

    def read(self) -> dict[str, list[str]]:
        """Empty where no run was cut short. A note that was cut short itself stands for no change at all."""
        try:
            return {str(path): list(map(str, digests)) for path, digests in json.loads(self.path.read_bytes()).items()}
        except (OSError, ValueError, AttributeError, TypeError):
            return {}

    def write(self, digests: Mapping[str, Sequence[str]]) -> None:
        """Replace the note, on disk when this returns. Raises DiagnosticError where it cannot be."""
        temporary = self.path.with_suffix(".tmp")
        try:
            if not digests:
                self.path.unlink(missing_ok=True)
                return
            with temporary.open("w", encoding="utf-8") as file:
                json.dump({path: list(known) for path, known in digests.items()}, file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.path)
        except OSError as error:
            problem = f"cannot write `{error.filename or temporary}`: {error.strerror}"
            raise DiagnosticError([Diagnostic(Severity.ERROR, "cannot-write", problem)]) from error


@contextmanager
def exclusive(output: Path) -> Iterator[Note]:
    """Be the only v4gen process that writes below `output`; another one waits.

    Raises DiagnosticError after waiting for PATIENCE seconds. The operating system frees the lock of a killed process.
    """
    from filelock import FileLock, Timeout

    place = _cache_folder() / digest_text(output.resolve().as_posix())[:32]
    lock = FileLock(place.with_suffix(".lock"), timeout=PATIENCE)
    try:
        lock.acquire()
    except Timeout as error:
        problem = f"another v4gen has been writing to `{output.as_posix()}` for {PATIENCE} seconds"
        raise DiagnosticError([Diagnostic(Severity.ERROR, "busy", problem, hint="wait for it, or end it")]) from error
    try:
        yield Note(place.with_suffix(".pending"))
    finally:
        lock.release()


def _cache_folder() -> Path:
    """A folder for v4gen in the user's cache; below the temporary files where that cannot be written."""
    user = f"v4gen-{os.getuid()}" if hasattr(os, "getuid") else "v4gen"
    for folder in (_user_cache() / "v4gen", Path(tempfile.gettempdir()) / user):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    problem = f"neither `{_user_cache()}` nor `{tempfile.gettempdir()}` can be written"
    raise DiagnosticError([Diagnostic(Severity.ERROR, "cannot-write", problem)])


def _user_cache() -> Path:
    if home := os.environ.get("XDG_CACHE_HOME"):
        return Path(home)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or tempfile.gettempdir())
    # os.path: where there is no home, pathlib raises, and the folder for temporary files will do.
    return Path(os.path.expanduser("~/Library/Caches" if sys.platform == "darwin" else "~/.cache"))  # noqa: PTH111
