"""v4gen check: compare what is on disk with what the specs give."""

import sys
from pathlib import Path

import rich_click as click

from .session import DRIFT, Session, session_options


@click.command("check")
@session_options
def command(arguments: tuple[Path, ...], output_folder: Path | None, json: bool) -> None:
    """Compare the packages on disk with what the SPECs give, by default every spec of the project.

    Prints a unified diff and exits with 1 where they differ. Writes nothing, and needs neither torch nor a GPU.
    """
    session = Session(arguments, json, output_folder)
    with session.errors():
        from v4gen import pipeline

        _, packages = pipeline.emit(session.paths)
        drift = pipeline.check(packages, session.output, complete=not arguments)
    if json:
        session.print_json({"clean": not drift, "drift": [entry.as_data() for entry in drift]})
    else:
        for entry in drift:
            click.echo(entry.diff, nl=False)
        for entry in drift:
            click.echo(f"{entry.kind}: {entry.path}", err=True)
        count = len(packages)
        outcome = f"{len(drift)} files differ: run `v4gen generate`" if drift else "as the specs say"
        click.echo(f"{count} package{'s' * (count != 1)} checked, {outcome}", err=bool(drift))
    sys.exit(DRIFT if drift else 0)
