"""v4gen init: write a new spec."""

import sys
from typing import Any

import rich_click as click

from v4gen.diagnostic import DiagnosticError

from .session import Session, failure

# What a spec has to say, in the order of asking, and what to ask.
QUESTIONS = {
    "name": "Name of the package",
    "heads": "Index heads",
    "dim": "Width of a head",
    "topk": "Keys selected for each query",
    "compress_ratio": "Tokens that one key stands for",
}

CHOICES = {"interface": "Interface; `seed` adds the names of the hand-written modules", "layout": "Order of q's axes"}


@click.command("init")
@click.argument("name", required=False)
@click.option("--heads", type=int, help="H, the number of index heads.")
@click.option("--dim", type=int, help="D, the width of a head, a multiple of 16.")
@click.option("--topk", type=int, help="K, the keys selected for each query.")
@click.option("--compress-ratio", type=int, help="r, the tokens that one key stands for.")
@click.option("--layout", type=click.Choice(["SBHD", "BSHD", "THD"]), help="Order of q's axes.  [default: BSHD]")
@click.option(
    "--interface",
    type=click.Choice(["seed", "operator"]),
    help="`seed` adds the names of the hand-written modules.  [default: operator]",
)
@click.option("--targets", metavar="T,T", help="What to carry schedules for.  [default: cpu,sm_90a]")
@click.option("--from", "start", metavar="SHIPPED_SPEC", help="Start from a spec that v4gen ships.")
@click.option("--json", is_flag=True, help="Print one JSON document on standard output.")
def command(name: str | None, targets: str | None, start: str | None, json: bool, **options: Any) -> None:
    """Write the commented spec NAME where this project keeps its specs; it builds as it is.

    What is not given is asked for on a terminal. A file that is there already is never overwritten.
    """
    session = Session((), json, None)
    with session.errors():
        from v4gen.emit.write import Change, in_the_way, write
        from v4gen.pipeline import plan_specs
        from v4gen.read.draft import draft_spec
        from v4gen.read.reader import parse_spec
        from v4gen.read.schema import SCHEMA_FILE, schema_text

        given = {key: value for key, value in {"name": name, **options}.items() if value is not None}
        if targets is not None:
            given["targets"] = _split(targets)
        values = _values(given, start)
        path = session.project.spec_folder() / f"{values['name']}.yaml"
        text = draft_spec(values)
        plan_specs([parse_spec(text, path.as_posix())])
        if path.exists() or path.is_symlink():
            raise DiagnosticError([in_the_way(path)])
        schema = path.with_name(SCHEMA_FILE)  # editors complete from it
        write([Change(path, text), *([] if schema.exists() else [Change(schema, schema_text())])])
    if json:
        session.print_json({"spec": path.as_posix()})
    else:
        session.console.print(f"wrote {path}; next: v4gen build {path}", markup=False)


def _values(given: dict[str, Any], start: str | None) -> dict[str, Any]:
    """The values of the spec: those given, else those of the shipped spec `start`, else asked for, else defaults."""
    from v4gen.read.rules import SEED_NEEDS
    from v4gen.read.spec import spec_defaults

    start_values = _shipped(start) if start else {}
    known = start_values | given
    missing = [key for key in QUESTIONS if key not in known]
    if missing and not sys.stdin.isatty():
        flags = ", ".join("NAME" if key == "name" else f"--{key.replace('_', '-')}" for key in missing)
        raise failure("missing-option", f"the spec also needs {flags}", "or start from a shipped spec with --from")
    if missing:
        given = given | _asked(known)
    needed = SEED_NEEDS if given.get("interface") == "seed" else {}
    if given.get("layout") == "THD" and "mask" not in start_values:
        needed = {"mask": "varlen"}  # packed documents: THD has no causal mask
    shown = ("interface", "description", "origin", "layout", "mask", "width", "order", "dtype", "targets")
    return {key: spec_defaults()[key] for key in shown} | start_values | needed | given


def _asked(known: dict[str, Any]) -> dict[str, Any]:
    """Answers to what `known` leaves open; the last questions have an answer already."""
    from v4gen.read.expected import options
    from v4gen.read.spec import spec_defaults

    answers: dict[str, Any] = {}
    for key, question in QUESTIONS.items():
        if key not in known:
            answers[key] = click.prompt(question, type=str if key == "name" else int, err=True)
    for key, question in CHOICES.items():
        if key in known or (key == "layout" and answers.get("interface") == "seed"):
            continue
        choice = click.Choice(options((key,)))
        answers[key] = click.prompt(question, default=spec_defaults()[key], type=choice, err=True)
    if "targets" not in known:
        answers["targets"] = _split(click.prompt("Targets", default=",".join(spec_defaults()["targets"]), err=True))
    return answers


def _split(targets: str) -> list[str]:
    return [target.strip() for target in targets.split(",")]


def _shipped(name: str) -> dict[str, Any]:
    """What the shipped spec says, under its own name unless another is given."""
    from v4gen.read.reader import parse_spec
    from v4gen.resources import spec_text

    data = parse_spec(spec_text(name), name).model_dump(mode="json", exclude_defaults=True)
    del data["schema"]
    return data
