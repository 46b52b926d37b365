"""v4gen check: compare what is on disk with what the specs give."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from .progress import progress
from .session import DRIFT, Session, render, session_options

if TYPE_CHECKING:
    from v4gen.emit.compare import FileDrift


@click.command("check")
@session_options
@click.option("--ir", is_flag=True, help="Tell changed modules by their kernels' IR: cosmetic or semantic. Runs them.")
@click.option("--strict", is_flag=True, help="Notices (cosmetic, stale evidence, toolchain) count as drift.")
@click.option(
    "--patch", type=click.Path(dir_okay=False, path_type=Path), help="Write what is to change, for `git apply`."
)
@click.option(
    "--output-format",
    type=click.Choice(["text", "json", "github", "sarif"]),
    default="text",
    show_default=True,
    help="What to print; `--json` is short for json.",
)
def command(
    arguments: tuple[Path, ...],
    output_folder: Path | None,
    json: bool,
    ir: bool,
    strict: bool,
    patch: Path | None,
    output_format: str,
) -> None:
    """Compare the packages on disk with what the SPECs give, by default every spec of the project.

    Prints a unified diff and exits with 1 where they differ: a file is missing, edited by hand, outdated, or an orphan.
    Changes no file of the project, and needs neither torch nor a GPU.
    """
    output_format = "json" if json else output_format
    session = Session(arguments, output_format == "json", output_folder, output_format)
    with session.errors():
        from v4gen import pipeline

        _, packages = pipeline.emit(session.paths)
        drift = pipeline.check(packages, session.output, complete=not arguments)
        if ir:
            with progress("comparing kernels", quiet=output_format != "text") as show:
                show("tracing", 0, 1)
                drift = pipeline.compare_kernels(drift, packages, session.output)
        if patch:
            pipeline.write_patch(patch, packages, session.output, session.project.root, complete=not arguments)
    failed = any(strict or not entry.kind.is_notice for entry in drift)
    if output_format == "json":
        session.print_json({"clean": not failed, "drift": [entry.as_data() for entry in drift]})
    else:
        _print(session, drift, len(packages), strict=strict)
    sys.exit(DRIFT if failed else 0)


def _print(session: Session, drift: "Sequence[FileDrift]", packages: int, *, strict: bool) -> None:
    from v4gen.report.drift import drift_diagnostics, summary

    if session.output_format != "text":
        click.echo(render(drift_diagnostics(drift, session.project.root, strict=strict), session.output_format))
        return
    failing = [entry for entry in drift if strict or not entry.kind.is_notice]
    for entry in failing:
        click.echo(entry.diff, nl=False)
    for entry in drift:
        reason = f" ({entry.reason})" if entry.reason else ""
        click.echo(f"{entry.kind}: {entry.path}{reason}", err=True)
    click.echo(summary(drift, packages, strict=strict), err=bool(failing))
