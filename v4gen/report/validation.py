"""A validation as a table for the terminal and as data for programs."""

from __future__ import annotations

import json

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from v4gen.run.evidence import CaseResult, Measurement, Validation

COMPARED = ("scores", "dq", "dk", "dw")
"""The measurements with a tolerance, a column each."""

MARGINS = (*COMPARED, "dk, low level")
"""The measurements whose smallest margin is told below the table."""

ROUNDING_NOTE = "dq and dk end in one rounding to their dtype, which alone may use up their bound."

FAILURES_SHOWN = 4


def render_table(validation: Validation) -> RenderableType:
    """One line a case: the worst error beside its bound for scores and gradients; then margins, and what failed."""
    table = Table(pad_edge=False, box=None)
    table.add_column(f"{validation.spec} on {place_of(validation.device, validation.target)}", no_wrap=True)
    table.add_column("", no_wrap=True)
    for name in COMPARED:
        table.add_column(f"{name}: error / bound", justify="right", no_wrap=True)
    table.add_column("checks", justify="right", no_wrap=True)
    table.add_column("s", justify="right", no_wrap=True)
    for case in validation.cases:
        table.add_row(*_row(case))
    margins = [line for name in MARGINS for line in _margin_lines(validation, name)]
    failures = [line for case in validation.failures for line in _failure_lines(case)]
    verdict = Text(summary(validation), style="green" if validation.passed else "bold red")
    return Group(table, Text(), *margins, Text(ROUNDING_NOTE, style="dim"), *failures, verdict)


def place_of(device: str, target: str) -> str:
    """The device, and the target that it took where that is another word."""
    return f"{device}, {target}" if target not in ("", device) else device


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
    found = _measurement(case, name)
    if found is None:
        return Text("-", style="dim")
    if found.error == 0:
        return "exact"
    return Text(f"{found.error:.0e} / {found.bound:.0e}", style="" if found.passed else "bold red")


def _measurement(case: CaseResult, name: str) -> Measurement | None:
    return next((measurement for measurement in case.measurements if measurement.name == name), None)


def _margin_lines(validation: Validation, name: str) -> list[Text]:
    """The smallest margin of one quantity over all cases; how far a result was from failing."""
    found = [(measurement, case) for case in validation.cases if (measurement := _measurement(case, name)) is not None]
    inexact = [(measurement.margin, measurement, case) for measurement, case in found if measurement.error != 0]
    if not inexact:
        return []
    margin, tightest, case = min(inexact, key=lambda entry: entry[0])
    error = f"error {tightest.error:.2e}, bound {tightest.bound:.2e}"
    return [Text(f"{name}: smallest margin {margin:.3g} ({error}, in `{case.name}`)", style="dim")]


def _failure_lines(case: CaseResult) -> list[Text]:
    lines = [f"{case.name} [{case.description}]"]
    if case.error:
        lines.append(f"  {case.error}")
    for failure in case.failures[:FAILURES_SHOWN]:
        lines.append(f"  {failure.name}: error {failure.error:.3g}, bound {failure.bound:.3g} {failure.where}".rstrip())
    more = len(case.failures) - FAILURES_SHOWN
    if more > 0:
        lines.append(f"  and {more} more")
    return [Text(line, style="red") for line in lines]
