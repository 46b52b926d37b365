"""What is installed, as a table for the terminal."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from v4gen.run.doctor import BASE, Finding


def findings_table(findings: Sequence[Finding]) -> Table:
    """One line a thing: its version or what is wrong, what it is for, and how to get it."""
    table = Table(box=None, pad_edge=False)
    for column in ("", "version", "for", "how to get it"):
        table.add_column(column)
    for finding in findings:
        # As text: rich would take `[cuda]` for markup.
        table.add_row(Text(finding.name), _state(finding), Text(finding.needed_for), Text(finding.hint or ""))
    return table


def _state(finding: Finding) -> Text:
    if finding.ok:
        return Text(finding.version or "", style="green")
    return Text(finding.version or "missing", style="bold red" if finding.needed_for == BASE else "yellow")
