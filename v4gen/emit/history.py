"""Generated packages as they were at a git revision."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

from v4gen.diagnostic import Diagnostic, DiagnosticError, Severity
from v4gen.emit.package import MARKER


def packages_at(revision: str, output: Path) -> dict[str, dict[str, str]]:
    """Package → path → text of what v4gen had generated into the folder `output` at the git `revision`.

    Nothing is checked out and nothing written. Raises DiagnosticError when `output` is in no git repository, when the
    repository has no such revision, and where git is missing.
    """
    folder = next(parent for parent in (output.absolute(), *output.absolute().parents) if parent.is_dir())
    top = Path(_git(folder, "rev-parse", "--show-toplevel").decode().strip())
    commit = _commit(folder, revision)
    inside = output.resolve().relative_to(top.resolve()).as_posix()
    packages: dict[str, dict[str, str]] = {}
    for path, text in _files(top, commit, inside):
        name, _, rest = path.partition("/")
        if rest:
            packages.setdefault(name, {})[rest] = text
    return {name: files for name, files in packages.items() if MARKER in files.get("__init__.py", "")}


def _commit(folder: Path, revision: str) -> str:
    try:
        # A revision that begins with a hyphen is no option.
        found = _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    except DiagnosticError as error:
        message = f"git knows no revision `{revision}` here"
        hint = "a shallow clone, as CI makes them, has only its own: fetch the revision first"
        raise DiagnosticError([Diagnostic(Severity.ERROR, "no-revision", message, hint=hint)]) from error
    return found.decode().strip()


def _files(top: Path, commit: str, inside: str) -> Iterator[tuple[str, str]]:
    """The Python files below `inside` at `commit`, by their path from there."""
    prefix = "" if inside == "." else f"{inside}/"
    listed = _git(top, "ls-tree", "-r", "-z", "--name-only", commit, "--", prefix or ".").decode()
    paths = [path for path in listed.split("\0") if path.endswith(".py")]
    for path in paths:
        data = _git(top, "show", f"{commit}:{path}")
        yield path.removeprefix(prefix), data.decode("utf-8", errors="replace").replace("\r\n", "\n")


def _git(folder: Path, *arguments: str) -> bytes:
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True)
    except OSError as error:
        raise _failure("git is not there", "install git") from error
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().partition("\n")[0]
        raise _failure(f"git {arguments[0]} failed: {said or f'exit code {done.returncode}'}")
    return done.stdout


def _failure(message: str, hint: str | None = None) -> DiagnosticError:
    return DiagnosticError([Diagnostic(Severity.ERROR, "git", message, hint=hint)])
