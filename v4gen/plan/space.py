"""The schedules that `tune` chooses from: many more than a plan weighs, held to the same budgets.

A plan takes the first of a few that are known to be good. Here is every combination of sizes that a kernel may have,
with what speaks against it; those nearest to the plan's own come first, so that a search that is cut short has seen the
likeliest.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import log2
from typing import TypeVar

from v4gen.plan.budget import backward_sm90_budget, backward_sm90_usage, backward_usage, budget, scores_usage
from v4gen.plan.choice import select_excess
from v4gen.plan.pin import pins_of, thread_granule
from v4gen.plan.plan import TargetPlan, make_plan
from v4gen.plan.schedule import (
    SM90_KEYS,
    BackwardSchedule,
    BackwardSm90Schedule,
    ScoresSchedule,
    SelectSchedule,
    backward_sm90_fault,
    round_up,
    scores_fault,
    selection_fault,
    serving,
    uneven_product,
)
from v4gen.plan.target import MatrixUnit, Target
from v4gen.read.spec import Spec

KERNELS = ("scores", "select", "backward")

AnySchedule = ScoresSchedule | SelectSchedule | BackwardSchedule | BackwardSm90Schedule
_Schedule = TypeVar("_Schedule", ScoresSchedule, SelectSchedule, BackwardSchedule, BackwardSm90Schedule)

# Rows of the query tile: its two fp32 fragments of anything taller leave no register for the rest.
TALLEST = 256


@dataclass(frozen=True)
class Option:
    """One schedule of a kernel, as the pins that ask for it.

    `excess` says in words by what it exceeds its budget: None for one that is admitted. `fault` says what else keeps
    it from being compiled, such as a product that its warps cannot share.
    """

    kernel: str
    pins: Mapping[str, int]
    excess: str | None = None
    fault: str | None = None

    def __str__(self) -> str:
        return ", ".join(f"{name.removeprefix(f'{self.kernel}_')} {size}" for name, size in self.pins.items())


def options(spec: Spec, target: Target) -> dict[str, tuple[Option, ...]]:
    """Every option of each kernel that `target` has, the plan's own first, whatever the spec pins for it."""
    planned = _planned(spec, target)
    found = {"scores": _options("scores", planned.scores, _scores(spec, target), spec, target)}
    if usual := serving(planned.select, spec.topk):
        found["select"] = _options("select", usual, _select(usual, target), spec, target)
    general = _options("backward", planned.backward, _backward(spec, target), spec, target)
    if planned.backward_sm90 is None:
        found["backward"] = general
    else:
        # The general kernel with its usual sizes cannot be asked for: a pin that changes nothing does not choose it.
        by_hand = _options("backward_sm90", planned.backward_sm90, _backward_sm90(spec, target), spec, target)
        found["backward"] = by_hand + general[1:]
    return found


def _planned(spec: Spec, target: Target) -> TargetPlan:
    pins = {name: sizes for name, sizes in spec.schedule.items() if name != target.name}
    (planned,) = make_plan(spec.model_copy(update={"targets": (target.name,), "schedule": pins})).targets
    return planned


def _options(
    name: str, usual: _Schedule, schedules: Iterator[_Schedule], spec: Spec, target: Target
) -> tuple[Option, ...]:
    kernel = name.removesuffix("_sm90")
    found: dict[_Schedule, None] = {usual: None} | dict.fromkeys(schedules)
    near = sorted(found, key=lambda schedule: _distance(pins_of(name, schedule), pins_of(name, usual)))
    return tuple(Option(kernel, pins_of(name, schedule), *_faults(schedule, spec, target)) for schedule in near)


def _distance(pins: Mapping[str, int], usual: Mapping[str, int]) -> tuple[int, float, tuple[int, ...]]:
    """How many sizes are others, by how much in all, and the sizes themselves, so that the order is one everywhere."""
    steps = [abs(log2(size + 1) - log2(usual[name] + 1)) for name, size in pins.items()]
    return sum(step > 0 for step in steps), sum(steps), tuple(pins.values())


def _faults(schedule: AnySchedule, spec: Spec, target: Target) -> tuple[str | None, str | None]:
    """By what a schedule exceeds its budget, and what else is wrong with it."""
    match schedule:
        case ScoresSchedule():
            usage = scores_usage(schedule, spec.dim, target)
            return budget(target, schedule.threads).fault(usage), scores_fault(schedule, target)
        case SelectSchedule():
            return select_excess(schedule, target), selection_fault(schedule, target)
        case BackwardSchedule():
            usage = backward_usage(schedule, spec.dim, target)
            return budget(target, schedule.threads).fault(usage), uneven_product(schedule, spec.dim, target)
        case BackwardSm90Schedule():
            usage = backward_sm90_usage(schedule, spec.dim, target)
            return backward_sm90_budget(target, schedule).fault(usage), backward_sm90_fault(schedule, spec.dim)


def _scores(spec: Spec, target: Target) -> Iterator[ScoresSchedule]:
    if target.is_cpu:
        for block_q, block_n in product((1, 2, 3, 4, 6, 8), (4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256)):
            yield ScoresSchedule(spec.heads, block_q, block_n, 1, 1)
        return
    # A loop whose trip count depends on the block is not pipelined over more than one stage but on Hopper.
    warpgroups = target.matrix_unit is MatrixUnit.WGMMA
    stages, granule = ((1, 2, 3, 4), 64) if warpgroups else ((0, 1), 16)
    heads = {round_up(spec.heads, 8), round_up(spec.heads, 16), round_up(spec.heads, 16) + 16}
    for padded, block_q, block_n, threads in product(
        sorted(heads), (1, 2, 3, 4, 8, 16), range(granule, 385, granule), _threads(target)
    ):
        if padded * block_q <= TALLEST:
            yield from (ScoresSchedule(padded, block_q, block_n, count, threads) for count in stages)


def _threads(target: Target) -> tuple[int, ...]:
    return tuple(count for count in (64, 96, 128, 192, 256, 320, 384, 512) if count % thread_granule(target) == 0)


def _select(usual: SelectSchedule, target: Target) -> Iterator[SelectSchedule]:
    threads: Sequence[int] = (1,) if target.is_cpu else (128, 256, 512, 1024)
    blocks: Sequence[int] = (1,) if target.is_cpu else (1, 2, 3, 4, 5, 6, 8)
    crowds = (16, 32, 64, 128) if target.is_cpu else (usual.crowd,)
    values = (8, 16, 32, 64) if target.is_cpu else (8, 16, 32)
    capacities = [usual.widest << shift for shift in (1, 2, 3)]
    for capacity, bins, crowd, count, held, blocks_per_sm in product(
        capacities, (512, 1024, 2048, 4096), crowds, threads, values, blocks
    ):
        yield replace(
            usual, capacity=capacity, bins=bins, crowd=crowd, threads=count, values=held, min_blocks=blocks_per_sm
        )


def _backward(spec: Spec, target: Target) -> Iterator[BackwardSchedule]:
    if target.is_cpu:
        yield from (BackwardSchedule(spec.heads, block_i, 1) for block_i in range(4, 257, 4))
        return
    fewest = round_up(spec.heads, 16)
    for padded, block_i, threads in product(range(fewest, fewest + 65, 16), range(16, 257, 16), _threads(target)):
        yield BackwardSchedule(padded, block_i, threads)


def _backward_sm90(spec: Spec, target: Target) -> Iterator[BackwardSm90Schedule]:
    fewest = round_up(spec.heads, 64)
    for padded, blocks in product((fewest, fewest + 64), (1, 2, 3, 4, 5)):
        yield BackwardSm90Schedule(padded, SM90_KEYS, blocks)
