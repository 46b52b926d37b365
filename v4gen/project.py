"""The `[tool.v4gen]` settings: where a project keeps its specs and its generated packages."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from v4gen.diagnostic import Diagnostic, DiagnosticError, Severity, Span, did_you_mean

_FILE = "pyproject.toml"
_DEFAULT_SPECS = ("specs/*.yaml",)
_DEFAULT_OUTPUT = "generated"
_KEYS = ("specs", "output")


@dataclass(frozen=True, slots=True)
class Project:
    """A project's settings.

    `specs` are glob patterns and `output` is a folder, all relative to `root` and inside it, with `/` between names.
    Raises ValueError when they are not.
    """

    root: Path
    specs: tuple[str, ...] = _DEFAULT_SPECS
    output: str = _DEFAULT_OUTPUT

    def __post_init__(self) -> None:
        if not self.specs:
            raise ValueError("a project names at least one pattern of specs")
        for path in (*self.specs, self.output):
            fault = _path_fault(path)
            if fault:
                raise ValueError(f"`{path}` {fault}")

    def spec_paths(self) -> tuple[Path, ...]:
        """The files that the patterns match, each once, sorted: the order does not depend on the disk."""
        found = {path for pattern in self.specs for path in self.root.glob(pattern) if path.is_file()}
        return tuple(sorted(found, key=Path.as_posix))

    def spec_folder(self) -> Path:
        """Where a new spec belongs: the folder of the first pattern.

        Raises DiagnosticError when that is no single folder of which every `.yaml` file is a spec.
        """
        folder, _, file = self.specs[0].rpartition("/")
        if file not in ("*.yaml", "*") or any(character in folder for character in "*?["):
            message = f"no single folder for a new spec follows from the pattern `{self.specs[0]}`"
            hint = 'let the first of `specs` in `[tool.v4gen]` be one such as "specs/*.yaml"'
            raise DiagnosticError([Diagnostic(Severity.ERROR, "no-folder", message, hint=hint)])
        return self.root / folder


def find_project(start: Path) -> Project:
    """The project that `start`, a folder or a file, lies in: that of the nearest `pyproject.toml` upward.

    Without one, and where it has no `[tool.v4gen]`, the defaults hold. Raises DiagnosticError with everything that is
    wrong with the settings.
    """
    folder = start if start.is_dir() else start.parent
    for root in (folder, *folder.absolute().parents):
        if (root / _FILE).is_file():
            return _read_project(root)
    return Project(folder)


def _read_project(root: Path) -> Project:
    settings = _Settings(root / _FILE)
    faults = list(settings.faults())
    if faults:
        raise DiagnosticError(faults)
    table = settings.table
    output = str(PurePosixPath(table.get("output", _DEFAULT_OUTPUT)))
    return Project(root, tuple(table.get("specs", _DEFAULT_SPECS)), output)


class _Settings:
    """The `[tool.v4gen]` table of one file, not yet checked, and the text to point into."""

    def __init__(self, path: Path) -> None:
        self.file = path.as_posix()
        try:
            self.text = path.read_bytes().decode("utf-8").replace("\r\n", "\n")
            document = tomllib.loads(self.text)
        except OSError as error:
            raise _unreadable(self.file, error.strerror or str(error)) from error
        except UnicodeDecodeError as error:
            raise _unreadable(self.file, "it is not valid UTF-8") from error
        except tomllib.TOMLDecodeError as error:
            raise _bad_toml(self.file, self.text, str(error)) from error
        tool = document.get("tool", {})
        self.table = tool.get("v4gen", {}) if isinstance(tool, dict) else {}

    def faults(self) -> Iterator[Diagnostic]:
        if not isinstance(self.table, dict):
            yield self.fault("v4gen", "`tool.v4gen` must be a table")
            return
        for key in self.table.keys() - set(_KEYS):
            hint = did_you_mean(key, _KEYS) or "the settings are `specs` and `output`"
            yield self.fault(key, f"unknown setting `{key}` in `[tool.v4gen]`", hint)
        yield from self.specs_faults()
        if "output" in self.table:
            yield from self.path_faults("output", self.table["output"])

    def specs_faults(self) -> Iterator[Diagnostic]:
        patterns = self.table.get("specs", list(_DEFAULT_SPECS))
        if not isinstance(patterns, list) or not patterns:
            hint = 'as in `specs = ["specs/*.yaml"]`'
            yield self.fault("specs", "`specs` must be a list of at least one pattern", hint)
            return
        for pattern in patterns:
            yield from self.path_faults("specs", pattern)

    def path_faults(self, key: str, path: object) -> Iterator[Diagnostic]:
        if not isinstance(path, str):
            yield self.fault(key, f"`{key}` must hold strings, found `{path}`")
        elif fault := _path_fault(path):
            yield self.fault(key, f"`{path}` in `{key}` {fault}", f"paths are relative to the folder of {_FILE}")

    def fault(self, key: str, message: str, hint: str | None = None) -> Diagnostic:
        number, line = self.locate(key)
        column = len(line) - len(line.lstrip()) + 1
        return Diagnostic(Severity.ERROR, "bad-settings", message, Span(self.file, number, column), line, hint)

    def locate(self, key: str) -> tuple[int, str]:
        """The line that sets `key` and its number; that of the table, or the first, where `tomllib` leaves no trace."""
        lines = self.text.split("\n")
        header = next((n for n, line in enumerate(lines) if re.match(r"\s*\[\s*tool\s*\.\s*v4gen\s*\]", line)), 0)
        spelt = re.compile(rf"\s*(\"{re.escape(key)}\"|'{re.escape(key)}'|{re.escape(key)})\s*=")
        number = next((n for n in range(header, len(lines)) if spelt.match(lines[n])), header)
        return number + 1, lines[number]


def _path_fault(path: str) -> str | None:
    """Why `path` is no path inside the project, as the end of a sentence; None when it is one."""
    if not path.strip() or any(ord(character) < 32 for character in path):
        return "is no path"
    if "\\" in path:
        return "has a backslash; write `/`, also on Windows"
    if path.startswith(("/", "~")) or re.match("[A-Za-z]:", path):
        return "is not relative to the project"
    if ".." in PurePosixPath(path).parts:
        return "leaves the project"
    return None


def _unreadable(file: str, reason: str) -> DiagnosticError:
    return DiagnosticError([Diagnostic(Severity.ERROR, "unreadable", f"cannot read `{file}`: {reason}")])


def _bad_toml(file: str, text: str, reason: str) -> DiagnosticError:
    place = re.search(r"\(at line (\d+), column (\d+)\)", reason)
    lines = text.split("\n")
    line, column = (int(place[1]), int(place[2])) if place else (len(lines), 1)
    problem = re.sub(r" \(at .*\)$", "", reason)
    span = Span(file, line, column)
    message = f"not valid TOML: {problem}"
    return DiagnosticError([Diagnostic(Severity.ERROR, "bad-toml", message, span, lines[line - 1])])
