"""Pinned schedules: `schedule: {sm_90a: {scores_block_n: 128, …}}` in a spec overrides fields of the default one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import TypeVar

from v4gen.diagnostic import Diagnostic, DiagnosticError, Severity, did_you_mean
from v4gen.plan.schedule import BackwardSchedule, BackwardSm90Schedule, ScoresSchedule, SelectSchedule
from v4gen.plan.target import MatrixUnit, Target
from v4gen.read.spec import Spec

KERNELS = {
    "scores": ScoresSchedule,
    "select": SelectSchedule,
    "backward": BackwardSchedule,
    "backward_sm90": BackwardSm90Schedule,
}
# Which widths a selection serves is the package's business.
_UNPINNED = ("select_widest",)

# What a size is a multiple of on a GPU: the rows and columns of matrix instructions.
_GRANULES = {
    "scores_padded_heads": 8,
    "scores_block_n": 16,
    "backward_padded_heads": 16,
    "backward_block_i": 16,
    "backward_sm90_padded_heads": 64,  # a warpgroup for each
    "backward_sm90_block_i": 64,  # a warpgroup's warps own 16 keys each
}

_Schedule = TypeVar("_Schedule", ScoresSchedule, SelectSchedule, BackwardSchedule, BackwardSm90Schedule)


def pin_names() -> list[str]:
    """Every name that a pinned schedule may set, such as `scores_block_n`."""
    return [name for kernel in KERNELS for name in _names(kernel)]


def _names(kernel: str) -> list[str]:
    names = (f"{kernel}_{field.name}" for field in fields(KERNELS[kernel]))
    return [name for name in names if name not in _UNPINNED]


def pins_of(
    kernel: str, schedule: ScoresSchedule | SelectSchedule | BackwardSchedule | BackwardSm90Schedule
) -> dict[str, int]:
    """The pins that ask for `schedule` of `kernel`."""
    return {name: getattr(schedule, name.removeprefix(f"{kernel}_")) for name in _names(kernel)}


def pinned(pins: Mapping[str, int], kernel: str, spec: Spec, target: Target) -> dict[str, int]:
    """The fields of the schedule of `kernel` that `pins` sets.

    Raises DiagnosticError on a name that no schedule has and on a size that no kernel can have.
    """
    problems = list(_faults(pins, spec, target))
    if problems:
        raise DiagnosticError(problems)
    return {name.removeprefix(f"{kernel}_"): pins[name] for name in _names(kernel) if name in pins}


def with_pins(candidates: Sequence[_Schedule], changes: Mapping[str, int]) -> list[_Schedule]:
    """The candidates that have the pinned sizes; where none has them, all candidates with those sizes set."""
    pinned_candidates = [replace(candidate, **changes) for candidate in candidates]
    agreeing = [one for one, candidate in zip(pinned_candidates, candidates, strict=True) if one == candidate]
    return agreeing or pinned_candidates


def _faults(pins: Mapping[str, int], spec: Spec, target: Target) -> Iterator[Diagnostic]:
    names = pin_names()
    for name, value in pins.items():
        if name not in names:
            hint = did_you_mean(name, names) or f"the entries are {', '.join(names)}"
            message = f"spec `{spec.name}`: `schedule.{target.name}` has no entry `{name}`"
            yield Diagnostic(Severity.ERROR, "schedule-name", message, hint=hint)
            continue
        multiple = _multiple_of(name, target)
        least = _least(name, spec, target)
        if value < least or value % multiple:
            wanted = f"at least {least}" + (f" and a multiple of {multiple}" if multiple > 1 else "")
            message = f"spec `{spec.name}`: `schedule.{target.name}.{name}` must be {wanted}, found {value}"
            yield Diagnostic(Severity.ERROR, "schedule-size", message)


def _least(name: str, spec: Spec, target: Target) -> int:
    if name.endswith("padded_heads"):
        return spec.heads
    # No stage in flight is a loop that is not pipelined; wgmma's must be.
    pipelined = target.is_cpu or target.matrix_unit is MatrixUnit.WGMMA
    return 0 if name.endswith("num_stages") and not pipelined else 1


def _multiple_of(name: str, target: Target) -> int:
    if target.is_cpu:
        return 1
    return thread_granule(target) if name.endswith("threads") else _GRANULES.get(name, 1)


def thread_granule(target: Target) -> int:
    """What the threads of a block are a multiple of: a warp, or the warpgroup that wgmma takes."""
    return 128 if target.matrix_unit is MatrixUnit.WGMMA else target.warp_size
