"""Validations as Markdown for a pull request, short enough for GitHub to take it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from v4gen.report.findings import Findings, Summary, number, reason
from v4gen.report.validation import summary
from v4gen.run.evidence import CaseResult, Measurement

LIMIT = 60_000
"""Characters; GitHub refuses a description of more than 65536, and somebody may write a few words above it."""

LONGEST = 300
"""Characters of one name or message; the page has the rest."""

CUT = "\n\nCut here, for GitHub's sake: `--report FILE.html` tells everything.\n"


def render_markdown(reports: Sequence[Findings]) -> str:
    """The verdicts first and the cases last, so that a text above LIMIT loses what matters least."""
    lines = ["### v4gen validate", ""]
    lines += [f"- **{report.validation.spec}** on {_where(report)}: {_verdict(report)}" for report in reports]
    for part in (_quantities, _failures, _cases):
        lines += [line for report in reports for line in part(report)]
    return _cut("\n".join(lines) + "\n")


def _where(report: Findings) -> str:
    machine = report.record["machine"]
    return f"{machine['device']} ({_code(machine['name'])}; {_code(report.versions)})"


def _verdict(report: Findings) -> str:
    return f"{'✅' if report.validation.passed else '❌'} {summary(report.validation)}"


def _quantities(report: Findings) -> Iterator[str]:
    yield from ("", f"#### {report.validation.spec}: errors and bounds", "")
    yield "| quantity | checks | error | bound | margin | in the case |"
    yield "| --- | ---: | ---: | ---: | ---: | --- |"
    yield from map(_row, report.summaries)
    yield from ("", report.exact_summary)


def _row(row: Summary) -> str:
    worst = row.worst.measurement
    numbers = f"{row.checks} | {number(worst.error)} | {number(worst.bound)} | {number(worst.margin)}"
    return f"| {_cell(row.name)} | {numbers} | {_cell(row.worst.case.name)} |"


def _failures(report: Findings) -> Iterator[str]:
    if not report.validation.failures:
        return
    yield from ("", f"#### {report.validation.spec}: failed", "")
    for case in report.validation.failures:
        place = f"- {_code(case.name)} ({_code(case.description)})"
        if reason(case):
            yield f"{place}: {_code(reason(case))}"
        yield from (f"{place}, {_failure(failure)}" for failure in case.failures)


def _failure(failure: Measurement) -> str:
    where = f": {_code(failure.where)}" if failure.where else ""
    return f"{_code(failure.name)}: error {number(failure.error)}, bound {number(failure.bound)}{where}"


def _cases(report: Findings) -> Iterator[str]:
    cases = report.validation.cases
    yield from ("", f"<details><summary>{report.validation.spec}: {len(cases)} cases</summary>", "")
    yield "| case | shape | | checks | s |"
    yield "| --- | --- | --- | ---: | ---: |"
    yield from map(_case, cases)
    yield from ("", f"Command: {_code(report.command)}", "", "</details>")


def _case(case: CaseResult) -> str:
    passed = sum(measurement.passed for measurement in case.measurements)
    outcome = "ok" if case.passed else "**FAILED**"
    checks = f"{passed}/{len(case.measurements)}"
    return f"| {_cell(case.name)} | {_cell(case.description)} | {outcome} | {checks} | {case.seconds:.1f} |"


def _cell(text: str) -> str:
    return _code(text).replace("|", "\\|")


def _code(text: str) -> str:
    """`text` on one line in a code span: there nothing is markup, mentions nobody and refers to no issue."""
    text = " ".join(text.split())
    if len(text) > LONGEST:
        text = text[: LONGEST - 1] + "…"
    if not text:
        return "-"
    # The fence is longer than any run of backticks inside; the spaces keep it apart from one at the edge.
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    return f"{fence} {text} {fence}" if "`" in text else f"{fence}{text}{fence}"


def _cut(text: str) -> str:
    """Whole lines of `text` within LIMIT; what is left open is closed, and a note says that something is missing."""
    if len(text) <= LIMIT:
        return text
    closing = "\n</details>"
    kept = text[: LIMIT - len(CUT) - len(closing)].rpartition("\n")[0]
    opened = kept.count("\n<details>") > kept.count("\n</details>")
    return kept + (f"\n{closing}" if opened else "") + CUT
