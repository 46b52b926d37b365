"""v4gen vendor: copy specs, packages and settings into another repository."""

from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from .session import Session, failure

if TYPE_CHECKING:
    from v4gen.project import Project


@click.command("vendor")
@click.argument("destination", metavar="DEST", type=click.Path(file_okay=False, path_type=Path))
@click.argument("specs", metavar="SPEC...", nargs=-1, required=True)
@click.option("--specs", "spec_folder", default="specs", show_default=True, help="Folder of specs, in a new project.")
@click.option("--output", default="generated", show_default=True, help="Folder of packages, in a new project.")
@click.option("--dry-run", is_flag=True, help="Say what would be written, and write nothing.")
@click.option("--json", is_flag=True, help="Print one JSON document on standard output.")
def command(
    destination: Path, specs: tuple[str, ...], spec_folder: str, output: str, dry_run: bool, json: bool
) -> None:
    """Copy the SPECs (files, or names of specs that v4gen ships) into the repository at DEST, and generate there.

    DEST gets `[tool.v4gen]` settings unless it has some, and from then on `v4gen check` works there alone. Files of
    DEST's own are never overwritten.
    """
    session = Session((), json, None)
    with session.errors():
        from v4gen import pipeline
        from v4gen.emit.package import emit_packages
        from v4gen.emit.vendor import plan_vendoring
        from v4gen.emit.write import write
        from v4gen.read.reader import parse_spec, read_specs

        if not destination.is_dir():
            raise failure("no-destination", f"there is no folder `{destination}`", "clone or make the repository first")
        texts = {}
        for source in specs:
            text = _text(source)
            texts[parse_spec(text, source).name] = text
        packages = emit_packages(pipeline.plan_specs([parse_spec(text, name) for name, text in texts.items()]))
        vendoring = plan_vendoring(destination, texts, packages, spec_folder, output)
        written = [change.path for change in vendoring.changes]
        if not dry_run:
            write(vendoring.changes)
            read_specs(vendoring.project.spec_paths())  # finds two specs that lead to one folder
            outcome = pipeline.generate(packages, vendoring.project.root / vendoring.project.output)
            written += outcome.written
    if json:
        session.print_json({"dry_run": dry_run, "written": [path.as_posix() for path in written]})
        return
    for path in written:
        session.console.print(f"{'would write' if dry_run else 'wrote'} {path}", markup=False)
    for step in _next_steps(vendoring.project, next(iter(texts))):
        session.console.print(step, markup=False)


def _text(source: str) -> str:
    """The text of the spec file `source`, or of the shipped spec of that name."""
    from v4gen.resources import spec_names, spec_text

    path = Path(source)
    if not path.exists() and source in spec_names():
        return spec_text(source)
    try:
        return path.read_bytes().decode("utf-8").replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError) as error:
        hint = f"it takes spec files, or one of {', '.join(spec_names())}"
        raise failure("unreadable", f"cannot read `{source}`", hint) from error


def _next_steps(project: "Project", name: str) -> list[str]:
    parts = Path(project.output).parts
    module = ".".join([*(parts[1:] if parts[0] == "src" else parts), name])  # `src` is on the path, not in it
    return [
        "",
        "next:",
        f"  commit these files in {project.root}",
        f"  import it: from {module} import lightning_indexer",
        "  in CI: pip install v4gen && v4gen check",
        f"  exclude {project.output} from the repository's own formatter",
    ]
