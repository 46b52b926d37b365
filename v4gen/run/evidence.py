"""What a validation found: plain data that reports and records read without loading torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Measurement:
    """One quantity held against its bound.

    `error` and `bound` are either a deviation and its derived limit at the worst element, or a count of wrong
    elements and 0. `where` tells the worst place of a measurement that failed.
    """

    name: str
    error: float
    bound: float
    where: str = ""

    @property
    def passed(self) -> bool:
        """Whether the error is within the bound; a NaN never is."""
        return self.error <= self.bound

    @property
    def margin(self) -> float:
        """How many times the error fits into the bound: above 1 passes, infinite for an exact result."""
        if self.error == 0:
            return math.inf
        return self.bound / self.error

    def as_data(self) -> dict[str, Any]:
        """JSON-ready data, keys in a fixed order."""
        return {
            "name": self.name,
            "passed": self.passed,
            "error": _json_number(self.error),
            "bound": _json_number(self.bound),
            "margin": _json_number(self.margin),
            "where": self.where,
        }


@dataclass(frozen=True)
class CaseResult:
    """One case of the matrix: its measurements, or the message of the exception that ended it."""

    name: str
    description: str
    measurements: tuple[Measurement, ...]
    seconds: float
    error: str = ""

    @property
    def passed(self) -> bool:
        """Whether something was measured and nothing failed."""
        return not self.error and bool(self.measurements) and not self.failures

    @property
    def failures(self) -> tuple[Measurement, ...]:
        """The measurements out of bounds, in the order they were made."""
        return tuple(m for m in self.measurements if not m.passed)

    @property
    def tightest(self) -> Measurement | None:
        """The measurement nearest to its bound, failures first; None where nothing was measured."""
        return min(self.measurements, key=lambda m: (m.passed, m.margin), default=None)

    def as_data(self) -> dict[str, Any]:
        """JSON-ready data, keys in a fixed order."""
        return {
            "name": self.name,
            "description": self.description,
            "passed": self.passed,
            "error": self.error,
            "seconds": round(self.seconds, 3),
            "measurements": [measurement.as_data() for measurement in self.measurements],
        }


@dataclass(frozen=True)
class Validation:
    """Every case of one package on one device. `target` is the one whose kernels ran, empty where nothing told."""

    spec: str
    device: str
    cases: tuple[CaseResult, ...]
    target: str = ""

    @property
    def passed(self) -> bool:
        """Whether at least one case ran and all of them passed."""
        return bool(self.cases) and all(case.passed for case in self.cases)

    @property
    def failures(self) -> tuple[CaseResult, ...]:
        """The cases that did not pass."""
        return tuple(case for case in self.cases if not case.passed)

    @property
    def seconds(self) -> float:
        """Time spent in all cases."""
        return sum(case.seconds for case in self.cases)

    def as_data(self) -> dict[str, Any]:
        """JSON-ready data, keys in a fixed order; numbers that JSON lacks are the strings "inf" and "nan"."""
        return {
            "spec": self.spec,
            "device": self.device,
            "target": self.target,
            "passed": self.passed,
            "seconds": round(self.seconds, 3),
            "cases": [case.as_data() for case in self.cases],
        }


def _json_number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)
