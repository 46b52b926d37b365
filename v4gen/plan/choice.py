"""The choice of a schedule: every candidate in order of preference, what it needs, and why it is not the one.

A plan takes the first candidate that nothing speaks against; `explain` shows the others with the same numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from v4gen.diagnostic import Diagnostic, DiagnosticError, Severity
from v4gen.plan.budget import (
    Budget,
    Usage,
    backward_sm90_budget,
    backward_sm90_usage,
    backward_usage,
    budget,
    scores_usage,
    select_usage,
)
from v4gen.plan.pin import pinned, with_pins
from v4gen.plan.schedule import (
    BackwardSchedule,
    BackwardSm90Schedule,
    ScoresSchedule,
    SelectSchedule,
    backward_candidates,
    backward_sm90_candidates,
    backward_sm90_fault,
    scores_candidates,
    scores_fault,
    select_schedules,
    selection_fault,
    serving,
    uneven_product,
)
from v4gen.plan.target import Target
from v4gen.read.spec import Spec

_Schedule = TypeVar("_Schedule", ScoresSchedule, BackwardSchedule, BackwardSm90Schedule)


@dataclass(frozen=True)
class Candidate(Generic[_Schedule]):
    """One schedule that was looked at. `fault` says what speaks against it, with its numbers; None if nothing does."""

    schedule: _Schedule
    usage: Usage
    limit: Budget
    fault: str | None

    def is_common(self, target: Target) -> bool:
        """Whether every device that takes the schedules of `target` has the shared memory for this one."""
        return self.usage.shared_memory <= target.common_shared_memory


@dataclass(frozen=True)
class Choice(Generic[_Schedule]):
    """The candidates of one kernel on one target, best first, and the sizes that the spec pinned."""

    kernel: str
    target: Target
    candidates: tuple[Candidate[_Schedule], ...]
    pinned: tuple[str, ...]

    @property
    def picked(self) -> _Schedule | None:
        """The schedule of the first candidate without a fault."""
        return next((candidate.schedule for candidate in self.candidates if candidate.fault is None), None)

    def schedule(self, spec: Spec) -> _Schedule:
        """The picked schedule. Raises DiagnosticError, with the numbers of the smallest candidate, if none fits."""
        if self.picked is None:
            raise DiagnosticError([self._none_fits(spec)])
        return self.picked

    def _none_fits(self, spec: Spec) -> Diagnostic:
        too_large = [one for one in self.candidates if one.fault == one.limit.fault(one.usage)]
        if not too_large:
            faults = " or ".join(dict.fromkeys(candidate.fault or "" for candidate in self.candidates))
            sizes = (
                f"spec `{spec.name}`: no {self.kernel} kernel of {self.target.name} can have the pinned sizes: {faults}"
            )
            return Diagnostic(Severity.ERROR, "schedule-size", sizes)
        least = min(too_large, key=lambda candidate: (candidate.usage.shared_memory, candidate.usage.registers))
        usage, limit = least.usage, least.limit
        message = (
            f"spec `{spec.name}`: no schedule of the {self.kernel} kernel fits {self.target.name} at heads "
            f"{spec.heads}, dim {spec.dim}: the smallest of {len(too_large)} needs {usage.shared_memory} bytes "
            f"of shared memory and {usage.registers} registers a thread, the limits are {limit.shared_memory} and "
            f"{limit.registers}"
        )
        hint = f"take `{self.target.name}` out of `targets`, or lower `heads` or `dim`"
        return Diagnostic(Severity.ERROR, "no-schedule", message, hint=hint)


def choose_scores(spec: Spec, target: Target) -> Choice[ScoresSchedule]:
    """The choice of the scores kernel's schedule. Raises DiagnosticError for a pinned size that no kernel can have."""
    changes = pinned(_pins(spec, target), "scores", spec, target)
    candidates = []
    for schedule in with_pins(list(scores_candidates(spec.heads, target)), changes):
        usage, limit = scores_usage(schedule, spec.dim, target), budget(target, schedule.threads)
        candidates.append(_weighed(schedule, usage, limit, scores_fault(schedule, target)))
    return Choice("scores", target, _common_first(candidates, target), tuple(changes))


def choose_backward(spec: Spec, target: Target) -> Choice[BackwardSchedule]:
    """The choice of the backward kernel's schedule. Raises as `choose_scores` does."""
    schedules = list(backward_candidates(spec.heads, target))
    uneven = {schedule: fault for schedule in schedules if (fault := uneven_product(schedule, spec.dim, target))}
    changes = pinned(_pins(spec, target), "backward", spec, target)
    if changes:
        # A pinned size overrides the schedules that might be taken, and is not held to an even share itself.
        schedules, uneven = with_pins([schedule for schedule in schedules if schedule not in uneven], changes), {}
    candidates = []
    for schedule in schedules:
        usage, limit = backward_usage(schedule, spec.dim, target), budget(target, schedule.threads)
        candidates.append(_weighed(schedule, usage, limit, uneven.get(schedule)))
    return Choice("backward", target, _common_first(candidates, target), tuple(changes))


def choose_backward_sm90(spec: Spec, target: Target) -> Choice[BackwardSm90Schedule]:
    """The choice of the backward kernel made for Hopper; where it has no schedule the general one serves.

    A pinned size that changes the general kernel asks for that one. Raises DiagnosticError for a pinned size that the
    kernel cannot have.
    """
    unpinned = spec.model_copy(update={"schedule": {}})
    general = choose_backward(spec, target).picked != choose_backward(unpinned, target).picked
    schedules = [] if general else list(backward_sm90_candidates(spec.heads, spec.dim, target))
    changes = pinned(_pins(spec, target), "backward_sm90", spec, target) if schedules else {}
    candidates = []
    for schedule in with_pins(schedules, changes):
        usage, limit = backward_sm90_usage(schedule, spec.dim, target), backward_sm90_budget(target, schedule)
        candidates.append(_weighed(schedule, usage, limit, backward_sm90_fault(schedule, spec.dim)))
    choice = Choice("backward_sm90", target, tuple(candidates), tuple(changes))
    if changes:
        choice.schedule(spec)  # no other kernel serves sizes that were asked for
    return choice


def choose_select(spec: Spec, target: Target) -> tuple[SelectSchedule, ...]:
    """The selection kernel's schedules, one a class of widths; pins are of the one that serves the spec's top-k.

    None where selection is by sorting. Raises DiagnosticError for a pinned size that no kernel can have.
    """
    schedules = select_schedules(target)
    changes, usual = pinned(_pins(spec, target), "select", spec, target), serving(schedules, spec.topk)
    if not changes or usual is None:
        return schedules
    (changed,) = with_pins([usual], changes)
    if fault := selection_fault(changed, target) or select_excess(changed, target):
        message = f"spec `{spec.name}`: no selection kernel of {target.name} can have the pinned sizes: {fault}"
        raise DiagnosticError([Diagnostic(Severity.ERROR, "schedule-size", message)])
    return tuple(changed if schedule is usual else schedule for schedule in schedules)


def select_excess(schedule: SelectSchedule, target: Target) -> str | None:
    """By what a schedule of the selection kernel exceeds its budget, in words; None when it stays within."""
    usage, blocks = select_usage(schedule), schedule.min_blocks
    if blocks * usage.shared_memory > target.shared_memory:
        return f"{blocks} blocks of {usage.shared_memory} bytes of shared memory, over {target.shared_memory}"
    return budget(target, schedule.threads).fault(usage)


def _common_first(candidates: Sequence[Candidate[_Schedule]], target: Target) -> tuple[Candidate[_Schedule], ...]:
    """What every device that takes the target's schedules can hold, before what only the target itself can."""
    return tuple(sorted(candidates, key=lambda candidate: not candidate.is_common(target)))


def _weighed(schedule: _Schedule, usage: Usage, limit: Budget, fault: str | None = None) -> Candidate[_Schedule]:
    return Candidate(schedule, usage, limit, fault or limit.fault(usage))


def _pins(spec: Spec, target: Target) -> dict[str, int]:
    return {
        name: size
        for pinned_for, sizes in spec.schedule.items()
        if pinned_for == target.name
        for name, size in sizes.items()
    }
