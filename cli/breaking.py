"""v4gen breaking: name changes that break callers, against a git revision."""

import sys
from pathlib import Path

import rich_click as click

from .session import DRIFT, Session, failure, session_options


@click.command("breaking")
@session_options
@click.option("--against", "revision", required=True, metavar="REF", help="The git revision to compare with.")
def command(arguments: tuple[Path, ...], output_folder: Path | None, json: bool, revision: str) -> None:
    """Compare the interface of the packages that the SPECs give with the packages committed at REF.

    Names what breaks a caller: functions that are gone, parameters, defaults and returns that changed, other sizes,
    layout or targets, another autograd contract. Exits with 1 if there is any. Reads text only, and needs no torch.
    """
    session = Session(arguments, json, output_folder)
    with session.errors():
        from v4gen import pipeline
        from v4gen.emit.breaking import breaks
        from v4gen.emit.history import packages_at

        before = packages_at(revision, session.output)
        _, packages = pipeline.emit(session.paths)
        now = {package.name: package.files for package in packages}
        compared = [name for name in before if name in now or not arguments]
        if not compared:
            hint = "name a revision whose packages are committed"
            raise failure("nothing-to-compare", f"`{revision}` has none of these packages", hint)
        found = [change for name in sorted(compared) for change in breaks(name, before[name], now.get(name))]
    if json:
        session.print_json({"compatible": not found, "breaking": [change.as_data() for change in found]})
    else:
        for change in found:
            session.console.print(f"{change.package}: {change.name}: {change.message}", markup=False)
        outcome = f"{len(found)} breaking" if found else "nothing breaks"
        click.echo(f"{len(compared)} package{'s' * (len(compared) != 1)} compared, {outcome}", err=bool(found))
    sys.exit(DRIFT if found else 0)
