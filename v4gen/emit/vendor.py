"""Put specs and their settings into another project, so that it generates and checks by itself."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from v4gen.diagnostic import Diagnostic, DiagnosticError, Severity
from v4gen.emit.package import Package
from v4gen.emit.standing import Standing, read_text, standing
from v4gen.emit.write import Change, in_the_way
from v4gen.project import Project, find_project
from v4gen.read.schema import SCHEMA_FILE, schema_text

_FILE = "pyproject.toml"


@dataclass(frozen=True)
class Vendoring:
    """What vendoring is about to write besides packages, and the project that results."""

    project: Project
    changes: tuple[Change, ...]


def plan_vendoring(
    folder: Path, specs: Mapping[str, str], packages: Sequence[Package], spec_folder: str, output: str
) -> Vendoring:
    """What brings `specs` (name → text) into the project in `folder`; writes nothing.

    A project with settings keeps them; `spec_folder` and `output` are for one without. Raises DiagnosticError when a
    file of the project's own would be overwritten by a spec or by one of `packages`.
    """
    settings, text = _settings(folder)
    project = find_project(folder) if settings else _new_project(folder, spec_folder, output)
    places = {project.spec_folder() / f"{name}.yaml": text for name, text in specs.items()}
    problems = [in_the_way(path) for path in (*_foreign_specs(places), *_foreign_files(packages, project))]
    if problems:
        raise DiagnosticError(problems)
    changes = [Change(path, due) for path, due in places.items() if read_text(path) != due]
    schema = project.spec_folder() / SCHEMA_FILE
    if not schema.exists():  # editors complete from it
        changes.append(Change(schema, schema_text()))
    if not settings:
        changes.append(Change(folder / _FILE, _with_settings(text, project)))
    return Vendoring(project, tuple(changes))


def _settings(folder: Path) -> tuple[bool, str]:
    """Whether the project in `folder` has settings of v4gen's, and the text of its pyproject.toml, if it has one."""
    try:
        text = (folder / _FILE).read_bytes().decode("utf-8")
        document = tomllib.loads(text.replace("\r\n", "\n"))
    except FileNotFoundError:
        return False, ""
    except (OSError, ValueError) as error:
        problem = f"cannot read `{(folder / _FILE).as_posix()}`: {error}"
        raise DiagnosticError([Diagnostic(Severity.ERROR, "unreadable", problem)]) from error
    return "v4gen" in document.get("tool", {}), text


def _new_project(folder: Path, spec_folder: str, output: str) -> Project:
    try:
        return Project(folder, (f"{spec_folder.rstrip('/')}/*.yaml",), output)
    except ValueError as error:
        raise DiagnosticError([Diagnostic(Severity.ERROR, "bad-settings", str(error))]) from error


def _with_settings(text: str, project: Project) -> str:
    """`text`, a pyproject.toml, with the settings of `project` in a table at its end; nothing else of it changes."""
    newline = "\r\n" if "\r\n" in text else "\n"
    if text and not text.endswith("\n"):
        text += newline
    lines = ["[tool.v4gen]", f'specs = ["{project.specs[0]}"]', f'output = "{project.output}"', ""]
    changed = text + (newline if text else "") + newline.join(lines)
    try:
        tomllib.loads(changed.replace("\r\n", "\n"))
    except tomllib.TOMLDecodeError as error:
        hint = f"add them yourself: {' '.join(lines)}"
        problem = f"cannot add the settings to `{(project.root / _FILE).as_posix()}`: {error}"
        raise DiagnosticError([Diagnostic(Severity.ERROR, "bad-settings", problem, hint=hint)]) from error
    return changed


def _foreign_specs(places: Mapping[Path, str]) -> Iterator[Path]:
    for path, due in places.items():
        if standing(path, due, None) not in (Standing.ABSENT, Standing.DUE):
            yield path


def _foreign_files(packages: Sequence[Package], project: Project) -> Iterator[Path]:
    for package in packages:
        for name, text in package.files.items():
            path = project.root / project.output / package.name / name
            if standing(path, text, None) is Standing.FOREIGN:
                yield path
