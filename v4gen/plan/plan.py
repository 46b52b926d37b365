"""Plan: all that the templates may use. A number or branch in an emitted file is a field here, with one producer."""

import textwrap
from dataclasses import dataclass
from math import gcd

from v4gen.diagnostic import Diagnostic, DiagnosticError, Severity
from v4gen.digest import digest_data
from v4gen.plan.budget import backward_sm90_usage, backward_usage, scores_usage, select_usage
from v4gen.plan.choice import choose_backward, choose_backward_sm90, choose_scores, choose_select
from v4gen.plan.cost import SCORE_BYTES, SORTING_BYTES
from v4gen.plan.schedule import BackwardSchedule, BackwardSm90Schedule, ScoresSchedule, SelectSchedule, select_schedules
from v4gen.plan.target import TARGETS, Target
from v4gen.read.spec import Spec

MIB = 1 << 20
DOCSTRING_WIDTH = 112


@dataclass(frozen=True)
class TargetPlan:
    """The schedules of the kernels on one target, and what the largest block of them takes of shared memory, in bytes.

    `select` has one for each class of widths, and none where selection is by sorting. `backward_sm90` is there where a
    kernel scheduled by hand serves the target.
    """

    target: Target
    shared_memory: int
    scores: ScoresSchedule
    select: tuple[SelectSchedule, ...]
    backward: BackwardSchedule
    backward_sm90: BackwardSm90Schedule | None = None


@dataclass(frozen=True)
class Plan:
    """Everything that one emitted package is made from.

    `spec_digest` names the spec's values, for the lock. `description` and `origin` are safe inside a docstring.
    `score_scratch` counts the scores that one chunk of queries may hold. The booleans are the templates' only branches.
    """

    name: str
    spec_digest: str
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
    layout: str
    mask: str
    local_indices: bool
    seed_interface: bool
    sorts: bool
    width_is_min: bool
    order_by_index: bool
    deterministic: bool
    scales_weights: bool
    scales_gradients: bool
    pads_heads: bool

    @property
    def weight_vector(self) -> int:
        """Weights that a kernel loads at once, at most 16 bytes of them: so many divide a query's heads."""
        return gcd(self.heads, 4)

    @property
    def packed(self) -> bool:
        """Whether tokens lie end to end without a batch."""
        return self.layout == "THD"

    @property
    def causal(self) -> bool:
        return self.mask == "causal"

    @property
    def varlen(self) -> bool:
        return self.mask == "varlen"

    @property
    def is_float16(self) -> bool:
        return self.dtype == "float16"

    @property
    def has_gpu(self) -> bool:
        return any(not entry.target.is_cpu for entry in self.targets)

    @property
    def has_backward_sm90(self) -> bool:
        return any(entry.backward_sm90 for entry in self.targets)


def make_plan(spec: Spec) -> Plan:
    """Plan the package of `spec`.

    Raises DiagnosticError, all findings at once, when a target has no schedule that fits its budget or a pinned
    schedule does not.
    """
    problems: list[Diagnostic] = []
    targets = tuple(plan for name in spec.targets if (plan := _plan_target(spec, TARGETS[name], problems)))
    if problems:
        raise DiagnosticError(problems)
    return Plan(
        name=spec.name,
        # Without defaults: one written out changes nothing, nor does a key that a later v4gen adds.
        spec_digest=digest_data(spec.model_dump(mode="json", exclude_defaults=True)),
        description=docstring_text(spec.description),
        origin=docstring_text(spec.origin),
        heads=spec.heads,
        dim=spec.dim,
        topk=spec.topk,
        compress_ratio=spec.compress_ratio,
        dtype=spec.dtype,
        weight_scale=spec.weight_scale,
        score_scratch=score_scratch(spec),
        scratch_mib=spec.forward.scratch_mib,
        targets=targets,
        layout=spec.layout,
        mask=spec.mask,
        local_indices=spec.index_base == "local",
        seed_interface=spec.interface == "seed",
        sorts=sorts(spec),
        width_is_min=spec.width == "min",
        order_by_index=spec.order == "index",
        deterministic=spec.backward.deterministic,
        scales_weights=spec.weight_scale != 1,
        scales_gradients=spec.dtype == "float16",
        pads_heads=any(
            spec.heads != schedule.padded_heads for plan in targets for schedule in (plan.scores, plan.backward)
        ),
    )


def sorts(spec: Spec) -> bool:
    """Whether some target of the spec has no selection kernel and sorts whole rows."""
    return not all(select_schedules(TARGETS[name]) for name in spec.targets)


def score_scratch(spec: Spec) -> int:
    """How many scores a chunk of queries may hold in the spec's scratch memory, with what sorting keeps beside them."""
    return spec.forward.scratch_mib * MIB // (SCORE_BYTES + (SORTING_BYTES if sorts(spec) else 0))


def docstring_text(text: str) -> str:
    """`text` wrapped and escaped so that it can stand anywhere in a triple-quoted docstring."""
    escaped = text.strip().replace("\\", "\\\\").replace('"', '\\"')
    return "\n".join(line for part in escaped.split("\n") for line in _wrapped(part))


def _wrapped(line: str) -> list[str]:
    # Words stay whole: half an escape sequence would be another one.
    return textwrap.wrap(line, DOCSTRING_WIDTH, break_long_words=False, break_on_hyphens=False) or [""]


def _plan_target(spec: Spec, target: Target, problems: list[Diagnostic]) -> TargetPlan | None:
    try:
        scores, backward = choose_scores(spec, target).schedule(spec), choose_backward(spec, target).schedule(spec)
        backward_sm90 = choose_backward_sm90(spec, target).picked
        select = choose_select(spec, target)
        usages = [scores_usage(scores, spec.dim, target), backward_usage(backward, spec.dim, target)]
        usages += [select_usage(schedule) for schedule in select]
        if backward_sm90:
            usages.append(backward_sm90_usage(backward_sm90, spec.dim, target))
        shared_memory = max(usage.shared_memory for usage in usages)
        return TargetPlan(target, shared_memory, scores, select, backward, backward_sm90)
    except DiagnosticError as error:
        problems.extend(error.diagnostics)
        return None


def _error(code: str, message: str, hint: str) -> Diagnostic:
    return Diagnostic(Severity.ERROR, code, message, hint=hint)
