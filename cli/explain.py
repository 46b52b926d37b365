"""v4gen explain: the plan of a spec with its numbers and reasons."""

import sys
from pathlib import Path

import rich_click as click

from .session import BAD_INPUT, Session, require_targets

LENGTH = 65536


@click.command("explain")
@click.argument("spec_path", metavar="SPEC", type=click.Path(path_type=Path))
@click.option("--target", "targets", multiple=True, metavar="TARGET", help="Explain these, not all of the spec's.")
@click.option("--length", type=click.IntRange(1), default=LENGTH, show_default=True, help="Tokens, for the costs.")
@click.option("--json", is_flag=True, help="Print one JSON document on standard output.")
def command(spec_path: Path, targets: tuple[str, ...], length: int, json: bool) -> None:
    """Show how the kernels of SPEC are cut into tiles, what that needs, and why.

    Lists the candidates that were looked at with the numbers that speak against them, and the least that the steps
    can cost: operations, bytes, and the time that a datasheet's peak rates leave. Exits with 2 if nothing fits.
    """
    session = Session((spec_path,), json, None)
    with session.errors():
        from v4gen.plan.explain import explain
        from v4gen.read.reader import read_specs

        (spec,) = read_specs(session.paths)
        require_targets([spec], targets)
        explanation = explain(spec, targets or spec.targets, length)
    if json:
        session.print_json(explanation.as_data())
    else:
        from v4gen.report.plan import explanation_tables

        session.console.print(explanation_tables(explanation))
    sys.exit(0 if explanation.fits else BAD_INPUT)
