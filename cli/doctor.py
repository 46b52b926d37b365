"""v4gen doctor: tell what is installed, what is missing, and how to get it."""

import sys

import rich_click as click

from .session import BAD_INPUT, Session


@click.command("doctor")
@click.option("--json", is_flag=True, help="Print one JSON document on standard output.")
def command(json: bool) -> None:
    """Tell what is installed of all that v4gen can use, in which versions, and how to get the rest.

    Exits with 2 if something is missing that `generate` and `check` need. Everything else is optional.
    """
    from v4gen.run.doctor import base_is_whole, examine

    session = Session((), json, None)
    findings = examine()
    if json:
        session.print_json({"ok": base_is_whole(findings), "findings": [finding.as_data() for finding in findings]})
    else:
        from v4gen.report.doctor import findings_table

        session.console.print(findings_table(findings))
    sys.exit(0 if base_is_whole(findings) else BAD_INPUT)
