"""Validations as one page of HTML, which loads nothing and runs nothing: it can be kept, mailed and opened offline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from v4gen.report import plot
from v4gen.report.findings import Findings, number, reason
from v4gen.report.validation import ROUNDING_NOTE, summary


def render_page(reports: Sequence[Findings]) -> str:
    """`reports`, a section each; equal ones give equal text."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    # Whatever a case or an exception is called is text: autoescape leaves no markup in it.
    environment = Environment(
        loader=PackageLoader("v4gen.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals.update(plot=plot, number=number, reason=reason, summary=summary, rounding_note=ROUNDING_NOTE)
    return environment.get_template("page.html.j2").render(sections=[_section(report) for report in reports])


def _section(report: Findings) -> dict[str, Any]:
    """What the template asks of a report: the report, and what to draw, None where there is nothing."""
    drawn = plot.drawable(report.tolerant)
    return {
        "report": report,
        "drawn": drawn,
        "scatter": plot.scatter(drawn) if drawn else None,
        "histogram": plot.histogram(drawn) if drawn else None,
    }
