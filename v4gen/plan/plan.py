"""Plan: all that the templates may use. A number or branch in an emitted file is a field here, with one producer."""

import textwrap
from dataclasses import dataclass
from typing import TypeVar

from v4gen.diagnostic import Diagnostic, DiagnosticError, Severity
from v4gen.plan.budget import Budget, Usage, backward_usage, budget, scores_usage
from v4gen.plan.cost import SELECTION_BYTES_PER_SCORE
from v4gen.plan.pin import pinned, with_pins
from v4gen.plan.schedule import BackwardSchedule, ScoresSchedule, backward_candidates, scores_candidates
from v4gen.plan.target import TARGETS, Target
from v4gen.read.spec import Spec

MIB = 1 << 20
DOCSTRING_WIDTH = 112

_Schedule = TypeVar("_Schedule", ScoresSchedule, BackwardSchedule)


@dataclass(frozen=True)
class TargetPlan:
    """The schedules of both kernels on one target."""

    target: Target
    scores: ScoresSchedule
    backward: BackwardSchedule


@dataclass(frozen=True)
class Plan:
    """Everything that one emitted package is made from.

    `description` and `origin` are safe inside a docstring. `score_scratch` counts the scores that one chunk of queries
    may hold. The booleans are the templates' only branches.
    """

    name: str
    description: str
    origin: str
    heads: int
    dim: int
    topk: int
    compress_ratio: int
    dtype: str
    weight_scale: float
    score_scratch: int
    scratch_mib: int
    targets: tuple[TargetPlan, ...]
    function_name: str
    sequence_first: bool
    seed_interface: bool
    width_is_min: bool
    order_by_index: bool
    deterministic: bool
    scales_weights: bool
    scales_gradients: bool
    pads_heads: bool

    @property
    def is_float16(self) -> bool:
        return self.dtype == "float16"


def make_plan(spec: Spec) -> Plan:
    """Plan the package of `spec`.

    Raises DiagnosticError, all findings at once, when a target has no schedule that fits its budget or a pinned
    schedule does not.
    """
    problems: list[Diagnostic] = []
    targets = tuple(plan for name in spec.targets if (plan := _plan_target(spec, TARGETS[name], problems)))
    if spec.backward.deterministic and any(not plan.target.is_cpu for plan in targets):
        problems.append(
            _error(
                "not-yet",
                f"spec `{spec.name}`: `backward.deterministic: true` is not there yet on GPU targets",
                "set `targets: [cpu]`, or `deterministic: false`",
            )
        )
    if problems:
        raise DiagnosticError(problems)
    return Plan(
        name=spec.name,
        description=docstring_text(spec.description),
        origin=docstring_text(spec.origin),
        heads=spec.heads,
        dim=spec.dim,
        topk=spec.topk,
        compress_ratio=spec.compress_ratio,
        dtype=spec.dtype,
        weight_scale=spec.weight_scale,
        score_scratch=spec.forward.scratch_mib * MIB // SELECTION_BYTES_PER_SCORE,
        scratch_mib=spec.forward.scratch_mib,
        targets=targets,
        function_name="V4IndexerFunction" if spec.interface == "seed" else "LightningIndexerFunction",
        sequence_first=spec.layout == "SBHD",
        seed_interface=spec.interface == "seed",
        width_is_min=spec.width == "min",
        order_by_index=spec.order == "index",
        deterministic=spec.backward.deterministic,
        scales_weights=spec.weight_scale != 1,
        scales_gradients=spec.dtype == "float16",
        pads_heads=any(
            spec.heads != schedule.padded_heads for plan in targets for schedule in (plan.scores, plan.backward)
        ),
    )


def docstring_text(text: str) -> str:
    """`text` wrapped and escaped so that it can stand anywhere in a triple-quoted docstring."""
    escaped = text.strip().replace("\\", "\\\\").replace('"', '\\"')
    return "\n".join(line for part in escaped.split("\n") for line in _wrapped(part))


def _wrapped(line: str) -> list[str]:
    # Words stay whole: half an escape sequence would be another one.
    return textwrap.wrap(line, DOCSTRING_WIDTH, break_long_words=False, break_on_hyphens=False) or [""]


def _plan_target(spec: Spec, target: Target, problems: list[Diagnostic]) -> TargetPlan | None:
    pins = {
        name: size
        for pinned_for, sizes in spec.schedule.items()
        if pinned_for == target.name
        for name, size in sizes.items()
    }
    try:
        return TargetPlan(target, _pick_scores(spec, target, pins), _pick_backward(spec, target, pins))
    except DiagnosticError as error:
        problems.extend(error.diagnostics)
        return None


def _pick_scores(spec: Spec, target: Target, pins: dict[str, int]) -> ScoresSchedule:
    candidates = list(scores_candidates(spec.heads, target))
    changes = pinned(pins, "scores", spec, target)
    candidates = with_pins(candidates, changes)
    tried = [(c, scores_usage(c, spec.dim, target), budget(target, c.threads)) for c in candidates]
    return _first_admitted(tried, spec, target, "scores")


def _pick_backward(spec: Spec, target: Target, pins: dict[str, int]) -> BackwardSchedule:
    candidates = list(backward_candidates(spec.heads, spec.dim, target))
    changes = pinned(pins, "backward", spec, target)
    candidates = with_pins(candidates, changes)
    tried = [(c, backward_usage(c, spec.dim, target), budget(target, c.threads)) for c in candidates]
    return _first_admitted(tried, spec, target, "backward")


def _first_admitted(tried: list[tuple[_Schedule, Usage, Budget]], spec: Spec, target: Target, kernel: str) -> _Schedule:
    for schedule, usage, limit in tried:
        if limit.admits(usage):
            return schedule
    _, usage, limit = min(tried, key=lambda entry: (entry[1].shared_memory, entry[1].registers))
    raise DiagnosticError(
        [
            _error(
                "no-schedule",
                f"spec `{spec.name}`: no schedule of the {kernel} kernel fits {target.name} at heads {spec.heads}, "
                f"dim {spec.dim}: the smallest of {len(tried)} needs {usage.shared_memory} bytes of shared memory and "
                f"{usage.registers} registers a thread, the limits are {limit.shared_memory} and {limit.registers}",
                f"take `{target.name}` out of `targets`, or lower `heads` or `dim`",
            )
        ]
    )


def _error(code: str, message: str, hint: str) -> Diagnostic:
    return Diagnostic(Severity.ERROR, code, message, hint=hint)
