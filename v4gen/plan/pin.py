"""Pinned schedules: `schedule: {sm_90a: {scores_block_n: 128, …}}` in a spec overrides fields of the default one."""

from dataclasses import fields

from v4gen.diagnostic import Diagnostic, DiagnosticError, Severity, did_you_mean
from v4gen.plan.schedule import BackwardSchedule, ScoresSchedule

KERNELS = {"scores": ScoresSchedule, "backward": BackwardSchedule}


def pin_names() -> list[str]:
    """Every name that a pinned schedule may set, such as `scores_block_n`."""
    return [f"{kernel}_{field.name}" for kernel, schedule in KERNELS.items() for field in fields(schedule)]


def pinned(
    pins: dict[str, int], kernel: str, schedule: type[ScoresSchedule | BackwardSchedule], spec: str, target: str
) -> dict[str, int]:
    """The fields of `schedule` that `pins` sets. Raises DiagnosticError on a name that no schedule has."""
    names = pin_names()
    problems = [_unknown(name, names, spec, target) for name in pins if name not in names]
    if problems:
        raise DiagnosticError(problems)
    prefix = f"{kernel}_"
    return {name.removeprefix(prefix): value for name, value in pins.items() if name.startswith(prefix)}


def _unknown(name: str, names: list[str], spec: str, target: str) -> Diagnostic:
    hint = did_you_mean(name, names) or f"the entries are {', '.join(names)}"
    return Diagnostic(
        Severity.ERROR, "schedule-name", f"spec `{spec}`: `schedule.{target}` has no entry `{name}`", hint=hint
    )
