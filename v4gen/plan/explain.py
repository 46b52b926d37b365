"""A plan with its reasons: what was picked, what it needs of what there is, what was rejected, and what it must cost.

Candidates and picks come from `choice`, as the plan's own do; nothing here decides anything.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from v4gen.plan.budget import Budget, Usage, budget, element_bytes, select_usage
from v4gen.plan.choice import Candidate, Choice, choose_backward, choose_backward_sm90, choose_scores, choose_select
from v4gen.plan.cost import (
    backward_bytes,
    backward_flops,
    scores_bytes,
    scores_flops,
    selected_pairs,
    selection_bytes,
    visible_pairs,
)
from v4gen.plan.plan import score_scratch
from v4gen.plan.reason import Reason, reasons
from v4gen.plan.schedule import BackwardSchedule, BackwardSm90Schedule, ScoresSchedule, SelectSchedule, serving
from v4gen.plan.target import TARGETS, Peak, Target
from v4gen.read.spec import Spec

AnySchedule = ScoresSchedule | BackwardSchedule | BackwardSm90Schedule
AnyChoice = Choice[ScoresSchedule] | Choice[BackwardSchedule] | Choice[BackwardSm90Schedule]
AnyCandidate = Candidate[ScoresSchedule] | Candidate[BackwardSchedule] | Candidate[BackwardSm90Schedule]

PICKED = "picked"
NOT_NEEDED = "fits, but a better one does too"


@dataclass(frozen=True)
class CandidateLine:
    """One candidate: its sizes by name, what it needs, its limits, and what became of it."""

    sizes: dict[str, int]
    usage: Usage
    limit: Budget
    outcome: str


@dataclass(frozen=True)
class KernelExplanation:
    """One kernel on one target. `picked` is None where no candidate fits."""

    kernel: str
    picked: CandidateLine | None
    threads: int
    padding: int  # heads of zeros beside the spec's own
    reasons: tuple[Reason, ...]
    candidates: tuple[CandidateLine, ...]


@dataclass(frozen=True)
class SelectionLine:
    """One schedule of the selection kernel, of which a package carries all: top-k is chosen anew in each call."""

    sizes: dict[str, int]
    usage: Usage
    limit: Budget
    outcome: str


@dataclass(frozen=True)
class Cost:
    """What one step costs at the least: operations, and bytes that each tensor moves if it moves once.

    `cache_bytes` is what the tiles read and add again, which caches have to serve. `floor_ms` follows from the peak
    rates of a datasheet and is None where there are none.
    """

    step: str
    flops: int
    bytes: int
    cache_bytes: int
    floor_ms: float | None
    bound: str


@dataclass(frozen=True)
class TargetExplanation:
    """One target: the devices that take it, its kernels, and their costs beside the datasheet that floors are made of.

    `shared_memory` is what the largest block takes, in bytes; 0 where some kernel has no schedule.
    """

    target: str
    devices: str
    shared_memory: int
    kernels: tuple[KernelExplanation, ...]
    selection: tuple[SelectionLine, ...]  # none where selection is by sorting
    costs: tuple[Cost, ...]
    peak: Peak | None
    chunk_queries: int


@dataclass(frozen=True)
class Explanation:
    """A spec's plan on some targets; costs are those of one causal sequence of `length` tokens."""

    spec: str
    heads: int
    dim: int
    topk: int
    length: int
    keys: int
    visible: int
    selected: int
    targets: tuple[TargetExplanation, ...]

    @property
    def fits(self) -> bool:
        """Whether every kernel that a target needs has a schedule."""
        needed = [kernel for entry in self.targets for kernel in entry.kernels if kernel.kernel != "backward_sm90"]
        return all(kernel.picked for kernel in needed)

    def as_data(self) -> dict[str, Any]:
        """JSON-ready data, keys in a fixed order."""
        return asdict(self)


def explain(spec: Spec, targets: Sequence[str], length: int) -> Explanation:
    """The plan of `spec` on `targets` and its costs for `length` tokens.

    Raises DiagnosticError for a pinned size that no kernel can have.
    """
    keys = length // spec.compress_ratio
    visible = visible_pairs(length, keys, spec.compress_ratio)
    selected = selected_pairs(length, keys, spec.compress_ratio, spec.topk)
    found = tuple(_explain_target(spec, TARGETS[name], length, visible, selected) for name in targets)
    return Explanation(spec.name, spec.heads, spec.dim, spec.topk, length, keys, visible, selected, found)


def _explain_target(spec: Spec, target: Target, length: int, visible: int, selected: int) -> TargetExplanation:
    scores, backward = choose_scores(spec, target), choose_backward(spec, target)
    backward_sm90 = choose_backward_sm90(spec, target)
    kernels = [_explain_kernel(spec, scores), _explain_kernel(spec, backward)]
    if backward_sm90.candidates:
        kernels.append(_explain_kernel(spec, backward_sm90))
    block_q = scores.picked.block_q if scores.picked else 1
    costs = _costs(spec, target, length, visible, selected, block_q)
    chunk = min(length, max(1, score_scratch(spec) // max(1, length // spec.compress_ratio)))
    selection = _selection(spec, target)
    shared_memory = _shared_memory([kernel.picked for kernel in kernels], selection)
    return TargetExplanation(
        target.name, target.devices, shared_memory, tuple(kernels), selection, costs, target.peak, chunk
    )


def _shared_memory(picked: Sequence[CandidateLine | None], selection: Sequence[SelectionLine]) -> int:
    return max(line.usage.shared_memory for line in (*picked, *selection) if line) if all(picked[:2]) else 0


def _explain_kernel(spec: Spec, choice: AnyChoice) -> KernelExplanation:
    picked = choice.picked
    lines = tuple(_line(candidate, candidate.schedule is picked, choice.target) for candidate in choice.candidates)
    why: tuple[Reason, ...] = () if picked is None else reasons(spec, choice.target, picked, choice.pinned)
    return KernelExplanation(
        choice.kernel,
        next((line for line in lines if line.outcome == PICKED), None),
        picked.threads if picked else 0,
        picked.padded_heads - spec.heads if picked else 0,
        why,
        lines,
    )


def _selection(spec: Spec, target: Target) -> tuple[SelectionLine, ...]:
    schedules = choose_select(spec, target)
    usual = serving(schedules, spec.topk)
    return tuple(
        SelectionLine(
            asdict(schedule),
            select_usage(schedule),
            budget(target, schedule.threads),
            _serves(schedule, usual, spec),
        )
        for schedule in schedules
    )


def _serves(schedule: SelectSchedule, usual: SelectSchedule | None, spec: Spec) -> str:
    if schedule is usual:
        return PICKED
    return f"narrower than the top {spec.topk}" if schedule.widest < spec.topk else "for wider calls"


def _line(candidate: AnyCandidate, is_picked: bool, target: Target) -> CandidateLine:
    schedule: AnySchedule = candidate.schedule
    sizes = {field.name: getattr(schedule, field.name) for field in fields(schedule)}
    fits = NOT_NEEDED if candidate.is_common(target) else f"fits {target.name}, but not every device that takes it"
    outcome = PICKED if is_picked else candidate.fault or fits
    return CandidateLine(sizes, candidate.usage, candidate.limit, outcome)


def _costs(spec: Spec, target: Target, length: int, visible: int, selected: int, block_q: int) -> tuple[Cost, ...]:
    heads, dim, element = spec.heads, spec.dim, element_bytes(target)
    keys = length // spec.compress_ratio
    columns = length * (min(spec.topk, keys) if spec.width == "min" else spec.topk)
    # A block reads a key once for its block_q queries; backward gathers a key, and adds to its dk, once a query.
    reread, gathered = visible // block_q * dim * element, selected * dim * (element + 4)
    return (
        _cost(
            "scores",
            scores_flops(heads, dim, visible),
            scores_bytes(heads, dim, length, keys, visible, element),
            reread,
            target,
        ),
        _cost("selection", 0, selection_bytes(visible, columns), 0, target),
        _cost(
            "backward",
            backward_flops(heads, dim, selected),
            backward_bytes(heads, dim, length, keys, columns, element),
            gathered,
            target,
        ),
    )


def _cost(step: str, flops: int, moved: int, cached: int, target: Target) -> Cost:
    if target.peak is None:
        return Cost(step, flops, moved, cached, None, "")
    computing, moving = flops / target.peak.flops, moved / target.peak.bandwidth
    return Cost(step, flops, moved, cached, max(computing, moving) * 1e3, "compute" if computing > moving else "memory")
