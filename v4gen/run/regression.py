"""Whether a package has become slower than a record says, told by ratios within each run and not by absolute times.

A device drifts from run to run, and machines of one kind differ, so that no time of one run can be held against
another's. What can is the ratio of the package to something else timed at the same shape in the same run, a yardstick:
a rival at the same task, the matrix product, the copy. Each ratio lies, by the bursts of its run, between

    fastest of ours / slowest of the yardstick   and   slowest of ours / fastest of the yardstick

and a task has regressed where the whole range now lies above the whole range then, by every yardstick that both runs
have. One alone may be off: a product is held back by the power cap, a copy by the memory, and a rival may be another
version.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from v4gen.run.contest import Shape
from v4gen.run.timing import CEILING, COPY, MATMUL, OURS, Contest, Timing


@dataclass(frozen=True)
class Ratio:
    """The package's time beside a yardstick's of the same run: by medians, and the range that the bursts allow."""

    median: float
    least: float
    most: float


@dataclass(frozen=True)
class Verdict:
    """One task at one shape, by the yardstick that speaks for it most.

    `fault` says in words what is wrong, and is empty where nothing is; without a ratio of both runs there is no
    yardstick.
    """

    task: str
    shape: Shape
    yardstick: str
    recorded: Ratio | None
    found: Ratio | None
    fault: str

    @property
    def change(self) -> float | None:
        """By what the ratio of the medians has grown, as a fraction."""
        return self.found.median / self.recorded.median - 1 if self.found and self.recorded else None

    def as_data(self) -> dict[str, Any]:
        """JSON-ready data, keys in a fixed order."""
        return {
            "task": self.task,
            **self.shape.as_data(),
            "yardstick": self.yardstick,
            "recorded": asdict(self.recorded) if self.recorded else None,
            "found": asdict(self.found) if self.found else None,
            "fault": self.fault,
        }


def verdicts(recorded: Contest, found: Contest) -> tuple[Verdict, ...]:
    """A verdict for each task of the package that the record has at a shape of this run, unless it was not asked for.

    A task that the record has and that could not be timed now is a fault.
    """
    return tuple(_verdicts(recorded, found))


def _verdicts(recorded: Contest, found: Contest) -> Iterator[Verdict]:
    for before in recorded.timings:
        if before.who != OURS or before.shape not in found.shapes:
            continue
        now = found.find(before.task, OURS, before.shape)
        if now is not None:
            yield _judged(before, now, recorded, found)
        elif reason := next((s.reason for s in found.skips if _same(s, before)), None):
            yield Verdict(before.task, before.shape, "", None, None, f"not timed any more: {reason}")


def _same(skip: Any, timing: Timing) -> bool:
    return bool((skip.task, skip.who, skip.shape) == (timing.task, timing.who, timing.shape))


def _judged(before: Timing, now: Timing, recorded: Contest, found: Contest) -> Verdict:
    by_yardstick = {}
    for task, who in _yardsticks(before, recorded):
        then, today = recorded.find(task, who, before.shape), found.find(task, who, before.shape)
        if then and today:
            by_yardstick[f"{task}, {who}" if task in (MATMUL, COPY) else who] = _ratio(before, then), _ratio(now, today)
    if not by_yardstick:
        return Verdict(before.task, before.shape, "", None, None, "no yardstick in both runs")
    mildest = min(by_yardstick, key=lambda name: by_yardstick[name][1].least / by_yardstick[name][0].most)
    then_ratio, ratio = by_yardstick[mildest]
    fault = "slower, beyond the spread of both runs" if ratio.least > then_ratio.most else ""
    return Verdict(before.task, before.shape, mildest, then_ratio, ratio, fault)


def _yardsticks(timing: Timing, recorded: Contest) -> list[tuple[str, str]]:
    rivals = [(t.task, t.who) for t in recorded.timings if (t.task, t.shape) == (timing.task, timing.shape)]
    return [*((task, who) for task, who in rivals if who != OURS), (MATMUL, CEILING), (COPY, CEILING)]


def _ratio(ours: Timing, yardstick: Timing) -> Ratio:
    return Ratio(
        ours.median_ms / yardstick.median_ms,
        ours.fastest_ms / yardstick.slowest_ms,
        ours.slowest_ms / yardstick.fastest_ms,
    )
