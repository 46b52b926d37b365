"""What every command does the same way: find its specs, print to the right stream, and end with an honest exit code."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import rich_click as click

from v4gen.diagnostic import Diagnostic, DiagnosticError, Severity
from v4gen.project import Project, find_project

if TYPE_CHECKING:
    from rich.console import Console

    from v4gen.emit.update import Outcome, Policy
    from v4gen.read.spec import Spec

DRIFT = 1
BAD_INPUT = 2

_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Session:
    """One run of a command: the specs it was given, where their packages are, and how to print."""

    arguments: tuple[Path, ...]
    json: bool
    output_folder: Path | None
    output_format: str = "text"  # of diagnostics where `json` is not set

    @cached_property
    def project(self) -> Project:
        return find_project(Path())

    @cached_property
    def paths(self) -> tuple[Path, ...]:
        """The specs named on the command line, else the project's. Raises DiagnosticError when there are none."""
        paths = self.arguments or self.project.spec_paths()
        if not paths:
            patterns = ", ".join(f"`{pattern}`" for pattern in self.project.specs)
            hint = "name a spec, or set `specs` under `[tool.v4gen]` in pyproject.toml"
            raise failure("no-specs", f"there are no specs at {patterns}", hint)
        return paths

    @cached_property
    def output(self) -> Path:
        """The folder that holds the packages."""
        return self.output_folder or self.project.root / self.project.output

    @cached_property
    def console(self) -> "Console":
        """Standard output, for results."""
        from rich.console import Console

        # A pipe gets whole lines: rich would fold them at 80 columns.
        return Console(highlight=False, soft_wrap=not sys.stdout.isatty(), width=None if sys.stdout.isatty() else 200)

    def print_json(self, data: Any) -> None:
        """The one document on standard output of a command under --json."""
        import json

        click.echo(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False))

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Print what a DiagnosticError says, and exit with 2."""
        try:
            yield
        except DiagnosticError as error:
            self.print_diagnostics(error.diagnostics)
            sys.exit(BAD_INPUT)

    def print_remarks(self, outcome: "Outcome") -> None:
        """On standard error, what to know about the files that were written, and those that were not."""
        if outcome.remarks:
            self.print_diagnostics(outcome.remarks)

    def print_diagnostics(self, diagnostics: Sequence[Diagnostic]) -> None:
        """Diagnostics on standard error, or as the JSON document."""
        if self.json:
            from v4gen.report.machine import diagnostic_object

            self.print_json({"diagnostics": [diagnostic_object(diagnostic) for diagnostic in diagnostics]})
            return
        if self.output_format != "text":
            click.echo(render(diagnostics, self.output_format))
            return
        from v4gen.report.text import render_diagnostics

        color = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
        click.echo(render_diagnostics(diagnostics, color), err=True, color=color)


def render(diagnostics: Sequence[Diagnostic], output_format: str) -> str:
    """Diagnostics as a document of standard output: `github` or `sarif`."""
    from v4gen.report.machine import render_github
    from v4gen.report.sarif import render_sarif

    return {"github": render_github, "sarif": render_sarif}[output_format](diagnostics)


def session_options(function: _Function) -> _Function:
    """SPEC…, --output and --json; the command takes `arguments`, `output_folder` and `json`."""
    decorators = (
        click.argument("arguments", nargs=-1, metavar="[SPEC]...", type=click.Path(path_type=Path)),
        click.option(
            "--output",
            "output_folder",
            type=click.Path(file_okay=False, path_type=Path),
            help="Folder of the packages, instead of the project's.",
        ),
        click.option("--json", is_flag=True, help="Print one JSON document on standard output."),
    )
    for decorator in reversed(decorators):
        function = decorator(function)
    return function


def policy_options(function: _Function) -> _Function:
    """--force and --merge; the command takes `force` and `merge`."""
    decorators = (
        click.option("--force", is_flag=True, help="Overwrite generated files that were edited by hand."),
        click.option("--merge", is_flag=True, help="Carry edits by hand over to the new output, through git."),
    )
    for decorator in reversed(decorators):
        function = decorator(function)
    return function


def policy(force: bool, merge: bool) -> "Policy":
    """What --force and --merge say about edited files. Raises DiagnosticError when both are given."""
    from v4gen.emit.update import Policy

    if force and merge:
        raise failure("bad-usage", "`--force` drops an edit and `--merge` keeps it: give one of them")
    return Policy.FORCE if force else Policy.MERGE if merge else Policy.REFUSE


def device_option(function: _Function) -> _Function:
    """--device: where the kernels run."""
    option = click.option(
        "--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True, help="Where the kernels run."
    )
    return option(function)


def target_option(function: _Function) -> _Function:
    """--target: whose kernels run; the command takes `target`."""
    text = "Run the kernels of this target, which the device can run, not those that it would take."
    return click.option("--target", metavar="TARGET", help=text)(function)


def failure(code: str, message: str, hint: str | None = None) -> DiagnosticError:
    """An error of the command's own."""
    return DiagnosticError([Diagnostic(Severity.ERROR, code, message, hint=hint)])


def require_runtime(device: str = "cpu") -> None:
    """Raise DiagnosticError unless torch, tilelang and what `device` needs are there."""
    missing = [name for name in ("torch", "tilelang") if find_spec(name) is None]
    if missing:
        raise failure("missing-tool", f"{' and '.join(missing)} not installed", "pip install 'v4gen[run]'")
    from v4gen.run.toolchain import GCC_HINT, find_gcc, sees_gpu

    if device == "cpu" and find_gcc() is None:
        raise failure("missing-tool", "gcc is not on the PATH, and the CPU kernels need it", GCC_HINT)
    if device == "cuda" and not sees_gpu():
        raise failure("missing-tool", "torch sees no CUDA device", "run on a machine with one, or use --device cpu")


def require_targets(specs: "Sequence[Spec]", targets: Sequence[str]) -> None:
    """Raise DiagnosticError unless each of the specs has all of these targets."""
    for spec in specs:
        if unknown := [target for target in targets if target not in spec.targets]:
            hint = f"its targets are {', '.join(spec.targets)}"
            raise failure("no-such-target", f"spec `{spec.name}` has no target `{unknown[0]}`", hint)


def require_package(folder: Path) -> None:
    """Raise DiagnosticError unless there is a package in `folder`."""
    if not (folder / "__init__.py").is_file():
        raise failure("missing-package", f"there is no package at `{folder}`", "run `v4gen generate` first")
