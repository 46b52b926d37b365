"""What a search for schedules has tried, and the file that keeps it: every schedule, with what became of it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from v4gen.diagnostic import Diagnostic, DiagnosticError, Severity
from v4gen.plan.space import Option
from v4gen.run.compile import KernelReport

LOG_VERSION = 1


class Fate(StrEnum):
    """What became of a schedule; the first four are out for good."""

    EXCEEDS = "over budget"  # the plan's budget model does not admit it
    UNFIT = "unfit"  # a rule of the kernel is against it
    FAILED = "failed"  # to compile, or with spilled registers
    WRONG = "wrong"  # gives other results
    WAITING = "waiting"  # not compiled yet
    COMPILED = "compiled"  # not timed yet
    SLOWER = "slower"  # dropped in the first rounds
    FINALIST = "finalist"
    PICKED = "picked"


@dataclass(frozen=True)
class Trial:
    """One schedule of a kernel, as pins, and what became of it; `reason` in words.

    Resources are those that ptxas reports, 0 where none are known: registers a thread, bytes spilled, bytes of shared
    memory. Milliseconds are the median, fastest and slowest of its last rounds, geometric means over the shapes; 0
    where it was not timed.
    """

    kernel: str
    pins: Mapping[str, int]
    fate: Fate
    reason: str = ""
    registers: int = 0
    spill_bytes: int = 0
    shared_memory: int = 0
    compile_seconds: float = 0.0
    median_ms: float = 0.0
    fastest_ms: float = 0.0
    slowest_ms: float = 0.0

    @classmethod
    def of(cls, option: Option) -> "Trial":
        if option.excess:
            return cls(option.kernel, option.pins, Fate.EXCEEDS, option.excess)
        if option.fault:
            return cls(option.kernel, option.pins, Fate.UNFIT, option.fault)
        return cls(option.kernel, option.pins, Fate.WAITING)

    def compiled(self, report: KernelReport) -> "Trial":
        """After its kernel was compiled; resources that an earlier compilation told stay."""
        found = report.resources
        fate = Fate.COMPILED if report.passed else Fate.FAILED
        after = replace(self, fate=fate, reason=report.problem, compile_seconds=round(report.seconds, 2))
        if found is None:
            return after
        return replace(
            after, registers=found.registers, spill_bytes=found.spill_bytes, shared_memory=found.shared_memory
        )

    def untimed(self) -> "Trial":
        """As it was before it was timed: times of another run say nothing in this one."""
        if self.fate not in (Fate.SLOWER, Fate.FINALIST, Fate.PICKED):
            return self
        return replace(self, fate=Fate.COMPILED, reason="", median_ms=0.0, fastest_ms=0.0, slowest_ms=0.0)

    def as_data(self) -> dict[str, Any]:
        """JSON-ready data, keys in a fixed order."""
        times = {name: round(getattr(self, name), 6) for name in ("median_ms", "fastest_ms", "slowest_ms")}
        return asdict(self) | {"pins": dict(self.pins), "fate": str(self.fate)} | times


@dataclass(frozen=True)
class Pick:
    """The schedule that a search chose for a kernel: how much longer the plan's own and the next best took, as
    fractions of its time (0 where it is the plan's own, or the only one)."""

    pins: Mapping[str, int]
    is_default: bool
    over_default: float
    over_runner_up: float
    runner_up: Mapping[str, int]

    def as_data(self) -> dict[str, Any]:
        """JSON-ready data, keys in a fixed order."""
        margins = {name: round(getattr(self, name), 4) for name in ("over_default", "over_runner_up")}
        return asdict(self) | {"pins": dict(self.pins), "runner_up": dict(self.runner_up)} | margins


@dataclass(frozen=True)
class Log:
    """A search on one target.

    `basis` is what it is about: digests of the spec but for its pins and of the templates, and the compilers' versions.
    `machine` and `shapes` are those of the timing, empty where nothing was timed.
    """

    spec: str
    target: str
    basis: Mapping[str, str]
    trials: tuple[Trial, ...]
    machine: Mapping[str, Any]
    shapes: tuple[str, ...]
    picks: Mapping[str, Pick]

    def of(self, kernel: str) -> list[Trial]:
        return [trial for trial in self.trials if trial.kernel == kernel]

    def as_data(self) -> dict[str, Any]:
        """JSON-ready data, keys in a fixed order."""
        return {
            "tune": LOG_VERSION,
            "spec": self.spec,
            "target": self.target,
            "basis": dict(self.basis),
            "machine": dict(self.machine),
            "shapes": list(self.shapes),
            "picks": {kernel: pick.as_data() for kernel, pick in self.picks.items()},
            "trials": [trial.as_data() for trial in self.trials],
        }


def read_log(path: Path) -> Log:
    """The log in the file. Raises DiagnosticError where it is none, or of another version."""
    try:
        data = json.loads(path.read_bytes())
        if data["tune"] != LOG_VERSION:
            raise ValueError(f"its version is {data['tune']!r}, and this v4gen reads {LOG_VERSION}")
        names = [field.name for field in fields(Trial)]
        trials = [Trial(**{name: row[name] for name in names} | {"fate": Fate(row["fate"])}) for row in data["trials"]]
        picks = {kernel: Pick(**pick) for kernel, pick in data["picks"].items()}
        shapes = _strings(data["shapes"])
        return Log(data["spec"], data["target"], data["basis"], tuple(trials), data["machine"], shapes, picks)
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _unusable(path, str(error) if isinstance(error, ValueError) else repr(error)) from error


def _strings(values: Sequence[object]) -> tuple[str, ...]:
    return tuple(map(str, values))


def _unusable(path: Path, reason: str) -> DiagnosticError:
    message = f"cannot use the log `{path.as_posix()}`: {reason}"
    return DiagnosticError([Diagnostic(Severity.ERROR, "bad-log", message, hint="remove it, and search anew")])
