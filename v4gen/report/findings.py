"""What a report tells of a validation, whatever it is written as."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from v4gen.report.validation import COMPARED
from v4gen.run.evidence import CaseResult, Measurement, Validation

OTHER = "other"
"""The quantity of a measurement that is of none of COMPARED."""


@dataclass(frozen=True)
class Finding:
    """A measurement, and the case in which it was made."""

    case: CaseResult
    measurement: Measurement

    @property
    def quantity(self) -> str:
        """What was measured, on whichever path: `dq, low level` and `dq alone` are of `dq`."""
        first = self.measurement.name.partition(",")[0].partition(" ")[0]
        return first if first in COMPARED else OTHER

    @property
    def tightness(self) -> tuple[bool, float]:
        """Sorts failures first, then by margin; an error that is NaN has none, and comes before all others."""
        found = self.measurement
        return found.passed, found.margin if found.margin == found.margin else -1.0


@dataclass(frozen=True)
class Summary:
    """The measurements of one name that have a tolerance: how many, and the one nearest to its bound."""

    name: str
    checks: int
    worst: Finding


@dataclass(frozen=True)
class Findings:
    """A validation, and the record of what ran where (see v4gen.run.record.make_record)."""

    validation: Validation
    record: dict[str, Any]

    @property
    def command(self) -> str:
        """The command line, as a shell takes it."""
        return shlex.join(self.record["command"])

    @property
    def versions(self) -> str:
        """What compiled and ran the kernels."""
        return ", ".join(f"{name} {version}" for name, version in self.record["toolchain"].items())

    @cached_property
    def all(self) -> tuple[Finding, ...]:
        """Every measurement, in the order they were made."""
        return tuple(Finding(case, found) for case in self.validation.cases for found in case.measurements)

    @property
    def tolerant(self) -> tuple[Finding, ...]:
        """The measurements that may have an error; the others are right or wrong."""
        return tuple(finding for finding in self.all if finding.measurement.bound != 0)

    @property
    def exact(self) -> tuple[Finding, ...]:
        """The measurements that may have no error."""
        return tuple(finding for finding in self.all if finding.measurement.bound == 0)

    @property
    def exact_summary(self) -> str:
        """The measurements that may have no error, in one sentence."""
        passed = sum(finding.measurement.passed for finding in self.exact)
        return f"{len(self.exact)} checks allow no error at all: {passed} of them passed."

    @property
    def summaries(self) -> tuple[Summary, ...]:
        """One for each name with a tolerance, in the order they were first measured."""
        named: dict[str, list[Finding]] = {}
        for finding in self.tolerant:
            named.setdefault(finding.measurement.name, []).append(finding)
        return tuple(_summary(name, findings) for name, findings in named.items())


def _summary(name: str, findings: list[Finding]) -> Summary:
    return Summary(name, len(findings), min(findings, key=lambda finding: finding.tightness))


def reason(case: CaseResult) -> str:
    """Why a case failed that no measurement of it tells; empty for every other case."""
    if case.error:
        return case.error
    return "" if case.measurements else "nothing was measured"


def number(value: float) -> str:
    """Three digits of an error, a bound or a margin."""
    return f"{value:.3g}"
