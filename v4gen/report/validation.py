"""A validation as a table for the terminal and as data for programs."""

from __future__ import annotations

import json

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from v4gen.run.evidence import CaseResult, Measurement, Validation

COMPARED = ("scores", "dq", "dk", "dw")
"""The measurements with a tolerance, a column each: error, bound and margin of the worst element."""

FAILURES_SHOWN = 4


def render_table(validation: Validation) -> RenderableType:
    """One line a case: error of the worst element over its bound for scores and gradients, then what failed."""
    table = Table(title=f"{validation.spec} on {validation.device}", title_justify="left", pad_edge=False, box=None)
    table.add_column("case", no_wrap=True)
    table.add_column("", no_wrap=True)
    for name in COMPARED:
        table.add_column(f"{name}: error / bound (margin)", justify="right")
    table.add_column("checks", justify="right")
    table.add_column("s", justify="right")
    for case in validation.cases:
        table.add_row(*_row(case))
    failures = [line for case in validation.failures for line in _failure_lines(case)]
    return Group(table, *failures, Text(summary(validation), style="green" if validation.passed else "bold red"))


def summary(validation: Validation) -> str:
    """The validation in one sentence."""
    cases, failed = len(validation.cases), len(validation.failures)
    measured = sum(len(case.measurements) for case in validation.cases)
    outcome = "all passed" if validation.passed else f"{failed} failed" if cases else "nothing was validated"
    return f"{cases} cases, {measured} checks: {outcome} in {validation.seconds:.1f} s"


def to_json(validation: Validation) -> str:
    """The validation as JSON text, every measurement included; numbers that JSON lacks become strings."""
    return json.dumps(validation.as_data(), indent=2, ensure_ascii=False, allow_nan=False)


def _row(case: CaseResult) -> tuple[RenderableType, ...]:
    passed = sum(measurement.passed for measurement in case.measurements)
    style = "green" if case.passed else "bold red"
    return (
        case.name,
        Text("ok" if case.passed else "FAILED", style=style),
        *(_compared(case, name) for name in COMPARED),
        f"{passed}/{len(case.measurements)}",
        f"{case.seconds:.1f}",
    )


def _compared(case: CaseResult, name: str) -> RenderableType:
    found = next((measurement for measurement in case.measurements if measurement.name == name), None)
    if found is None:
        return Text("-", style="dim")
    return Text(f"{found.error:.1e} / {found.bound:.1e} {_margin(found)}", style="" if found.passed else "bold red")


def _margin(measurement: Measurement) -> str:
    return "(exact)" if measurement.error == 0 else f"(x{measurement.margin:.3g})"


def _failure_lines(case: CaseResult) -> list[Text]:
    lines = [f"{case.name} [{case.description}]"]
    if case.error:
        lines.append(f"  raised {case.error}")
    for failure in case.failures[:FAILURES_SHOWN]:
        lines.append(f"  {failure.name}: error {failure.error:.3g}, bound {failure.bound:.3g} {failure.where}".rstrip())
    more = len(case.failures) - FAILURES_SHOWN
    if more > 0:
        lines.append(f"  and {more} more")
    return [Text(line, style="red") for line in lines]
