"""v4gen generate: write the packages of specs."""

from pathlib import Path

import rich_click as click

from .session import Session, session_options


@click.command("generate")
@session_options
def command(arguments: tuple[Path, ...], output_folder: Path | None, json: bool) -> None:
    """Write the packages of the SPECs, by default of every spec of the project.

    A file that is already right is left alone; one that v4gen did not generate is never overwritten.
    """
    session = Session(arguments, json, output_folder)
    with session.errors():
        from v4gen import pipeline

        _, packages = pipeline.emit(session.paths)
        written = pipeline.generate(packages, session.output)
    if json:
        names = [package.name for package in packages]
        session.print_json({"packages": names, "written": [path.as_posix() for path in written]})
        return
    for path in written:
        session.console.print(f"wrote {path}")
    count = len(packages)
    session.console.print(f"{count} package{'s' * (count != 1)}, {len(written)} files written")
