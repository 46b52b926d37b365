"""v4gen diff: show what generate would change."""

import os
import sys
from pathlib import Path

import rich_click as click

from .session import Session, session_options


@click.command("diff")
@session_options
def command(arguments: tuple[Path, ...], output_folder: Path | None, json: bool) -> None:
    """Show what `v4gen generate` would change, as a unified diff; by default for every spec of the project.

    Exits with 0 whether there are differences or not: `v4gen check` is the one that judges. Writes nothing.
    """
    session = Session(arguments, json, output_folder)
    with session.errors():
        from v4gen import pipeline

        _, packages = pipeline.emit(session.paths)
        drift = pipeline.check(packages, session.output, complete=not arguments)
    if json:
        session.print_json({"drift": [entry.as_data() for entry in drift if entry.diff]})
        return
    from v4gen.emit.compare import Drift
    from v4gen.report.diff import colored_diff

    color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    for entry in drift:
        click.echo(colored_diff(entry.diff) if color else entry.diff, nl=False, color=color)
        if entry.kind is Drift.EDITED:
            click.echo(f"{entry.path.as_posix()} was edited by hand: generate needs --merge or --force", err=True)
