"""v4gen list: the specs of this project."""

from pathlib import Path

import rich_click as click

from .session import Session, session_options


@click.command("list")
@session_options
def command(arguments: tuple[Path, ...], output_folder: Path | None, json: bool) -> None:
    """List the SPECs, by default every spec of the project, with their sizes and targets."""
    session = Session(arguments, json, output_folder)
    with session.errors():
        from v4gen.read.reader import read_specs

        specs = read_specs(session.paths)
    if json:
        session.print_json({"specs": [spec.model_dump(mode="json") for spec in specs]})
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("spec", "heads", "dim", "top-k", "ratio", "layout", "mask", "dtype", "targets"):
        table.add_column(column)
    for spec in specs:
        sizes = (str(size) for size in (spec.heads, spec.dim, spec.topk, spec.compress_ratio))
        table.add_row(spec.name, *sizes, spec.layout, spec.mask, spec.dtype, ", ".join(spec.targets))
    session.console.print(table)
