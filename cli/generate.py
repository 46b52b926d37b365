"""v4gen generate: write the packages of specs."""

import sys
from pathlib import Path

import rich_click as click

from .session import DRIFT, Session, policy, policy_options, session_options


@click.command("generate")
@session_options
@policy_options
def command(arguments: tuple[Path, ...], output_folder: Path | None, json: bool, force: bool, merge: bool) -> None:
    """Write the packages of the SPECs, by default of every spec of the project, and the lock beside them.

    A file that is already right is left alone; one that was edited by hand, or that v4gen did not generate, is never
    overwritten. Without SPECs, files of specs that are gone are removed. Exits with 1 if a merge left conflicts.
    """
    session = Session(arguments, json, output_folder)
    with session.errors():
        from v4gen import pipeline

        _, packages = pipeline.emit(session.paths)
        outcome = pipeline.generate(packages, session.output, policy(force, merge), complete=not arguments)
    if json:
        names = [package.name for package in packages]
        session.print_json({"packages": names} | outcome.as_data())
    else:
        for path in outcome.written:
            session.console.print(f"wrote {path}", markup=False)
        for path in outcome.removed:
            session.console.print(f"removed {path}", markup=False)
        session.print_remarks(outcome)
        count, files = len(packages), len(outcome.written)
        session.console.print(f"{count} package{'s' * (count != 1)}, {files} file{'s' * (files != 1)} written")
    sys.exit(DRIFT if outcome.conflicts else 0)
