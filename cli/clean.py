"""v4gen clean: remove what a killed run left, or generated packages."""

from pathlib import Path

import rich_click as click

from .session import Session, session_options


@click.command("clean")
@session_options
@click.option("--packages", "with_packages", is_flag=True, help="Also the packages of the SPECs.")
@click.option("--dry-run", is_flag=True, help="Say what would go, and remove nothing.")
def command(
    arguments: tuple[Path, ...], output_folder: Path | None, json: bool, with_packages: bool, dry_run: bool
) -> None:
    """Remove the temporary files that a killed v4gen left behind.

    With --packages also generated packages, which `v4gen generate` brings back: each only if all of its files are
    exactly what its spec gives. Other files beside them stay. The lock stays too, with its evidence.
    """
    session = Session(arguments, json, output_folder)
    with session.errors():
        import shutil

        from v4gen import pipeline
        from v4gen.emit.clean import removable, stale_files, stale_folders
        from v4gen.emit.exclusive import exclusive
        from v4gen.emit.write import Change, write

        _, packages = pipeline.emit(session.paths)
        with exclusive(session.output):
            changes = [Change(path, None) for path in stale_files(session.output, packages)]
            removals, kept = removable(packages, session.output) if with_packages else ((), ())
            changes += removals
            folders = stale_folders()
            if not dry_run:
                write(changes)
                for folder in folders:
                    shutil.rmtree(folder, ignore_errors=True)
    gone = [path.as_posix() for path in (*(change.path for change in changes), *folders)]
    left = [{"package": entry.package, "path": entry.path.as_posix()} for entry in kept]
    if json:
        session.print_json({"dry_run": dry_run, "removed": gone, "kept": left})
        return
    for name in gone:
        session.console.print(f"{'would remove' if dry_run else 'removed'} {name}", markup=False)
    for entry in kept:
        click.echo(f"kept {entry.package}: {entry.path.as_posix()} is not what its spec gives", err=True)
    session.console.print(f"{len(gone)} files {'to remove' if dry_run else 'removed'}")
