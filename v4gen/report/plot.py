"""Errors and bounds as drawings: where each mark goes. The page's template turns them into SVG."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from v4gen.report.findings import OTHER, Finding, number
from v4gen.report.validation import COMPARED

WIDTH, HEIGHT = 480, 320
LEFT, RIGHT, TOP, BOTTOM = 56, 468, 12, 276
"""The edges of the frame in the drawing; ticks and labels are outside."""

QUANTITIES = (*COMPARED, OTHER)

MOST_TICKS = 8
MOST_BINS = 48
NARROWEST_BIN = 0.25  # of a decade


@dataclass(frozen=True)
class Axis:
    """The values from `low` to `high` along the pixels from `start` to `end`, a tick every `step`."""

    low: float
    high: float
    start: float
    end: float
    step: float

    def at(self, value: float) -> float:
        """The pixel of a value, to a tenth."""
        return round(self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start), 1)

    @property
    def ticks(self) -> Iterator[tuple[float, float]]:
        """Pixel and value of each tick."""
        for position in range(math.ceil(self.low / self.step), math.floor(self.high / self.step) + 1):
            yield self.at(position * self.step), position * self.step


@dataclass(frozen=True)
class Dot:
    """A measurement at its bound, to the right, and its error, upwards."""

    x: float
    y: float
    quantity: str
    failed: bool
    title: str


@dataclass(frozen=True)
class Scatter:
    """Error against bound, in powers of ten on both axes; a dot above the line where they are equal has failed."""

    x: Axis
    y: Axis
    dots: tuple[Dot, ...]

    @property
    def line(self) -> tuple[float, float, float, float]:
        """Both ends of the line error = bound: x, y, x, y. The errors' axis has every bound in it."""
        return self.x.at(self.x.low), self.y.at(self.x.low), self.x.at(self.x.high), self.y.at(self.x.high)


@dataclass(frozen=True)
class Bar:
    """The measurements of one quantity in one bin, upon those of the quantities before it."""

    x: float
    y: float
    width: float
    height: float
    quantity: str
    title: str


@dataclass(frozen=True)
class Histogram:
    """Measurements by log10(error / bound); a bin holds its upper end, so that 0 is among those that passed."""

    x: Axis
    y: Axis
    bars: tuple[Bar, ...]


def drawable(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Those that have a place on axes of powers of ten: an error that is 0, infinite or NaN has none."""
    return tuple(
        finding
        for finding in findings
        if 0 < finding.measurement.error < math.inf and 0 < finding.measurement.bound < math.inf
    )


def scatter(findings: Sequence[Finding]) -> Scatter:
    """The drawable `findings`, at least one of them; failures are drawn last, upon the others."""
    findings = sorted(findings, key=lambda finding: not finding.measurement.passed)
    bounds = [math.log10(finding.measurement.bound) for finding in findings]
    errors = [math.log10(finding.measurement.error) for finding in findings]
    x = _decades(bounds, LEFT, RIGHT)
    y = _decades([*errors, *bounds], BOTTOM, TOP)
    placed = zip(findings, bounds, errors, strict=True)
    return Scatter(x, y, tuple(_dot(finding, x.at(bound), y.at(error)) for finding, bound, error in placed))


def _decades(exponents: Sequence[float], start: float, end: float) -> Axis:
    low, high = math.floor(min(exponents)), math.ceil(max(exponents))
    high = max(high, low + 1)
    return Axis(low, high, start, end, math.ceil((high - low) / MOST_TICKS))


def _dot(finding: Finding, x: float, y: float) -> Dot:
    found = finding.measurement
    numbers = f"error {number(found.error)}, bound {number(found.bound)}, margin {number(found.margin)}"
    return Dot(x, y, finding.quantity, not found.passed, f"{found.name} in {finding.case.name}: {numbers}")


def histogram(findings: Sequence[Finding]) -> Histogram:
    """The drawable `findings`, at least one of them."""
    ratios = [math.log10(f.measurement.error) - math.log10(f.measurement.bound) for f in findings]
    width = NARROWEST_BIN
    while max(ratios) - min(ratios) > width * MOST_BINS:
        width *= 2
    bins = [math.ceil(ratio / width) - 1 for ratio in ratios]
    counts = Counter(zip(bins, (finding.quantity for finding in findings), strict=True))
    # 0, the bound, is in the drawing whether a measurement came near it or not.
    x = _decades([min(bins) * width, (max(bins) + 1) * width, 0], LEFT, RIGHT)
    tallest = max(Counter(bins).values())
    y = Axis(0, tallest, BOTTOM, TOP, _round_step(tallest))
    return Histogram(x, y, tuple(_bars(counts, width, x, y)))


def _bars(counts: Counter[tuple[int, str]], width: float, x: Axis, y: Axis) -> Iterator[Bar]:
    for position in sorted({position for position, _ in counts}):
        low, high = position * width, (position + 1) * width
        below = 0
        for quantity in QUANTITIES:
            if count := counts[position, quantity]:
                title = f"{quantity}: {count} from 10^{low:g} to 10^{high:g} of the bound"
                top, bottom = y.at(below + count), y.at(below)
                left = x.at(low)
                yield Bar(left, top, round(x.at(high) - left, 1), round(bottom - top, 1), quantity, title)
                below += count


def _round_step(tallest: int) -> float:
    """The least of 1, 2, 5, 10, … that gives no more than MOST_TICKS ticks up to `tallest`."""
    power = 1
    while True:
        for digit in (1, 2, 5):
            if tallest / (digit * power) <= MOST_TICKS:
                return digit * power
        power *= 10
