"""What a benchmark found: timings, what was left out and why, and the ceilings of the same run beside them."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from v4gen.run.contest import Shape

OURS = "v4gen"
MATMUL, COPY = "matmul", "copy"
CEILING = "torch"  # whose the matrix product and the copy are
EVERY_TASK = "all"

# Milliseconds in a record are whole nanoseconds: no clock here is finer.
MS_DIGITS = 6


@dataclass(frozen=True)
class Timing:
    """One task of one contestant at one shape.

    Milliseconds of a call: median, fastest and slowest burst, and of calls on end for seconds (`sustained_ms`). `flops`
    counts the operations of a call, 0 where the task has none, and `bytes` what it moves at the least. `extra_mib` is
    the memory that a call takes beyond its inputs and outputs, in MiB, -1 where it is not known. `energy_mj` is the
    device's energy in mJ a call, and `sm_mhz` its clock, in the calls on end. What was not measured is 0.
    """

    task: str
    who: str
    shape: Shape
    median_ms: float
    fastest_ms: float
    slowest_ms: float
    sustained_ms: float = 0.0
    flops: int = 0
    bytes: int = 0
    extra_mib: float = -1.0
    energy_mj: float = 0.0
    sm_mhz: int = 0

    @property
    def gflops(self) -> float:
        """10⁹ operations a second at the median; 0 where none are counted."""
        return self.flops / self.median_ms / 1e6

    @property
    def gbytes(self) -> float:
        """10⁹ bytes a second at the median, of those that must move; 0 where none are counted."""
        return self.bytes / self.median_ms / 1e6


@dataclass(frozen=True)
class Skip:
    """Why a task (or EVERY_TASK) of a contestant has no timing at a shape: absent, unfit, out of memory or wrong."""

    task: str
    who: str
    shape: Shape
    reason: str


@dataclass(frozen=True)
class Contest:
    """What a run found, in the order of its shapes. `target` is the one whose kernels ran, empty where nothing told."""

    timings: tuple[Timing, ...]
    skips: tuple[Skip, ...]
    target: str = ""

    @property
    def shapes(self) -> tuple[Shape, ...]:
        return tuple(dict.fromkeys([t.shape for t in self.timings] + [s.shape for s in self.skips]))

    @cached_property
    def _found(self) -> dict[tuple[str, str, Shape], Timing]:
        return {(timing.task, timing.who, timing.shape): timing for timing in self.timings}

    def find(self, task: str, who: str, shape: Shape) -> Timing | None:
        return self._found.get((task, who, shape))

    def share(self, timing: Timing) -> float | None:
        """Its rate beside that of the matrix product of the same shape; None where no operations are counted."""
        ceiling = self.find(MATMUL, CEILING, timing.shape)
        return timing.gflops / ceiling.gflops if timing.flops and ceiling else None

    def bound_ms(self, timing: Timing) -> float | None:
        """The roofline's time of a call: its operations at the matrix product's rate, or its bytes at the copy's.

        The longer of the two, both rates being those of the same shape of this run; None where one of them is missing.
        Small tensors stay in caches, which are faster than the memory that the copy goes through.
        """
        product, copy = (self.find(task, CEILING, timing.shape) for task in (MATMUL, COPY))
        if not (product and copy and timing.bytes):
            return None
        return max(timing.flops / product.gflops, timing.bytes / copy.gbytes) / 1e6

    def roofline(self, timing: Timing) -> float | None:
        """The share of the roofline that it reaches: the bound beside its median."""
        bound = self.bound_ms(timing)
        return None if bound is None else bound / timing.median_ms

    def ratio(self, timing: Timing) -> float | None:
        """How many times as long as the package it took; None where the package has no such task."""
        ours = self.find(timing.task, OURS, timing.shape)
        return timing.median_ms / ours.median_ms if ours else None

    def as_data(self) -> dict[str, Any]:
        """JSON-ready data, keys in a fixed order."""
        skips = [{"task": s.task, "who": s.who, **s.shape.as_data(), "reason": s.reason} for s in self.skips]
        timings = [self._timing_data(timing) for timing in self.timings]
        return {"target": self.target, "timings": timings, "skipped": skips}

    def _timing_data(self, timing: Timing) -> dict[str, Any]:
        share, roofline, ratio = self.share(timing), self.roofline(timing), self.ratio(timing)
        return {
            "task": timing.task,
            "who": timing.who,
            **timing.shape.as_data(),
            "median_ms": round(timing.median_ms, MS_DIGITS),
            "fastest_ms": round(timing.fastest_ms, MS_DIGITS),
            "slowest_ms": round(timing.slowest_ms, MS_DIGITS),
            "sustained_ms": round(timing.sustained_ms, MS_DIGITS),
            "flops": timing.flops,
            "bytes": timing.bytes,
            "extra_mib": round(timing.extra_mib, 3),
            "energy_mj": round(timing.energy_mj, 3),
            "sm_mhz": timing.sm_mhz,
            "gflops": round(timing.gflops, 2),
            "gbytes": round(timing.gbytes, 2),
            "of_matmul": None if share is None else round(share, 4),
            "of_roofline": None if roofline is None else round(roofline, 4),
            "of_v4gen": None if ratio is None else round(ratio, 4),
        }


def read_contest(data: Mapping[str, Any]) -> Contest:
    """The contest of a record's `bench`. What an older record does not hold is as if it had not been measured.

    Raises KeyError, TypeError or ValueError where `data` is none.
    """
    timings = tuple(Timing(shape=_shape(row), **_measured(row)) for row in data["timings"])
    skips = tuple(Skip(row["task"], row["who"], _shape(row), row["reason"]) for row in data["skipped"])
    return Contest(timings, skips, data.get("target", ""))


def _shape(row: Mapping[str, Any]) -> Shape:
    return Shape(**{field.name: row[field.name] for field in fields(Shape)})


def _measured(row: Mapping[str, Any]) -> dict[str, Any]:
    return {field.name: row[field.name] for field in fields(Timing) if field.name in row}
