"""Why a schedule has the sizes that it has, in words, beside the sizes themselves."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from v4gen.plan.schedule import MAX_ROWS, BackwardSchedule, BackwardSm90Schedule, ScoresSchedule
from v4gen.plan.target import MatrixUnit, Target
from v4gen.read.spec import Spec

PINNED = "pinned by the spec"


@dataclass(frozen=True)
class Reason:
    """Why `size` has its `value`."""

    size: str
    value: int
    why: str


def reasons(
    spec: Spec,
    target: Target,
    schedule: ScoresSchedule | BackwardSchedule | BackwardSm90Schedule,
    pinned: Sequence[str],
) -> tuple[Reason, ...]:
    """A reason for each size of `schedule`, in the order of its fields; `pinned` names those that the spec set."""
    match schedule:
        case ScoresSchedule():
            found = _scores(spec, target, schedule)
        case BackwardSchedule():
            found = _backward(spec, target, schedule)
        case BackwardSm90Schedule():
            found = _backward_sm90(spec, schedule)
    return tuple(Reason(size, getattr(schedule, size), PINNED if size in pinned else why) for size, why in found)


def _scores(spec: Spec, target: Target, schedule: ScoresSchedule) -> Iterator[tuple[str, str]]:
    if target.is_cpu:
        yield from _cpu(("padded_heads", "block_q", "block_n", "num_stages", "threads"))
        return
    yield "padded_heads", _padding(spec.heads, schedule.padded_heads, 8, "the columns an instruction gives a warp")
    rows = f"{schedule.block_q} × {schedule.padded_heads} = {schedule.rows} rows, of at most {MAX_ROWS}"
    yield "block_q", f"{rows}: two float32 fragments of the tile stay in registers"
    yield "block_n", "the largest tile of keys whose fragments and buffers fit"
    yield "num_stages", _stages(target, schedule.num_stages)
    if target.matrix_unit is MatrixUnit.WGMMA:
        yield "threads", f"a warpgroup of 128 for each 64 of {schedule.block_n} keys; a producer joins them"
    else:
        yield "threads", "a warp holds whole rows of heads, so that no sum over heads crosses warps"


def _backward(spec: Spec, target: Target, schedule: BackwardSchedule) -> Iterator[tuple[str, str]]:
    if target.is_cpu:
        yield from _cpu(("padded_heads", "block_i", "threads"))
        return
    yield "padded_heads", _padding(spec.heads, schedule.padded_heads, 16, "which the warps can share")
    yield "block_i", "the largest tile of gathered keys whose fragments and buffers fit"
    warps = schedule.threads // target.warp_size
    yield "threads", f"{warps} warps take an equal share of each of the three products"


def _backward_sm90(spec: Spec, schedule: BackwardSm90Schedule) -> Iterator[tuple[str, str]]:
    yield "padded_heads", _padding(spec.heads, schedule.padded_heads, 64, "a warpgroup each")
    yield "block_i", f"{schedule.block_i} gathered keys: the rows of one wgmma"
    yield "blocks_per_sm", "the most blocks that share a multiprocessor, each hiding the others' waits"


def _cpu(sizes: Sequence[str]) -> Iterator[tuple[str, str]]:
    return ((size, "one thread, no matrix instruction to fill: tiles are plain arrays on the stack") for size in sizes)


def _padding(heads: int, padded: int, group: int, meaning: str) -> str:
    padding = f"{padded - heads} heads of zeros" if padded > heads else "no padding"
    return f"{padding}: whole groups of {group}, {meaning}"


def _stages(target: Target, stages: int) -> str:
    if target.matrix_unit is MatrixUnit.WGMMA:
        return f"{stages} key tile{'s' * (stages != 1)} in flight, loaded by TMA"
    if not target.has_tma:
        return "no TMA to fill a stage ahead"
    return "a loop whose trip count depends on the block is not pipelined deeper here"
