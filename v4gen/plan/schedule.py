"""Schedules: how a kernel's work is cut into tiles. Candidates are listed best first; `choice` picks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from v4gen.plan.target import MatrixUnit, Target

# The tile of keys × (queries · heads) that one block multiplies is at most this wide: two fp32 fragments of it
# (products and weighted products) must stay in registers.
MAX_ROWS = 128

# Keys in a tile of the backward kernel scheduled by hand: a warp owns 16 of them.
SM90_KEYS = 64

# Keys in one bin of a selection from which on a sorting network beats comparing each with all others.
CROWD = 64


@dataclass(frozen=True)
class ScoresSchedule:
    """Tiling of the scores kernel.

    A block holds `block_q` queries of `padded_heads` heads each and walks over the visible keys in tiles of `block_n`,
    `num_stages` tiles in flight. `threads` counts the threads that compute.
    """

    padded_heads: int
    block_q: int
    block_n: int
    num_stages: int
    threads: int

    @property
    def rows(self) -> int:
        """Rows of the query tile: queries times heads."""
        return self.block_q * self.padded_heads


@dataclass(frozen=True)
class BackwardSchedule:
    """Tiling of the backward kernel: a block holds one query and walks over its selected keys in tiles of `block_i`."""

    padded_heads: int
    block_i: int
    threads: int


@dataclass(frozen=True)
class BackwardSm90Schedule:
    """Tiling of the backward kernel that is scheduled by hand for Hopper: a warpgroup for each 64 heads of a query.

    `blocks_per_sm` blocks are to share a multiprocessor, so that each hides the others' waits.
    """

    padded_heads: int
    block_i: int
    blocks_per_sm: int

    @property
    def threads(self) -> int:
        """Threads of a block: 128 make a warpgroup."""
        return 2 * self.padded_heads


@dataclass(frozen=True)
class SelectSchedule:
    """How a block of `threads` selects up to `widest` keys from a row.

    It puts at most `capacity` candidates in order, in `bins` bins; a thread holds `values` scores in registers.
    """

    widest: int
    capacity: int
    bins: int
    crowd: int
    threads: int
    values: int
    min_blocks: int


def round_up(value: int, multiple: int) -> int:
    """The least multiple of `multiple` from `value` on."""
    return -(-value // multiple) * multiple


def _query_tiles(heads: int, target: Target) -> list[tuple[int, int]]:
    """(padded_heads, block_q) in order of preference: least padding first, then the tallest tile.

    Heads are padded to whole groups of 8, the columns that one matrix instruction gives a warp, and the rows to a
    multiple of 16: wgmma with an N of 8 modulo 16 gives wrong numbers.
    """
    if target.is_cpu:
        return [(heads, 1)]
    tiles = [
        (padded, block_q)
        for padded in range(round_up(heads, 8), round_up(heads, 16) + 1, 8)
        for block_q in (16, 8, 4, 2, 1)
        if padded * block_q <= MAX_ROWS and padded * block_q % 16 == 0
    ]
    return sorted(tiles, key=lambda tile: (tile[0], -tile[1]))


def scores_candidates(heads: int, target: Target) -> Iterator[ScoresSchedule]:
    """Every schedule of the scores kernel worth having on `target`, best first."""
    # (block_n, threads, num_stages): one warpgroup for each 64 keys on Hopper; elsewhere a loop whose trip count
    # depends on the block must not be pipelined over more than one stage, and without TMA one stage gains nothing.
    stages = 1 if target.has_tma else 0
    shapes = {
        MatrixUnit.SCALAR: [(16, 1, 1)],
        MatrixUnit.WGMMA: [(192, 384, 3), (192, 384, 2), (128, 256, 2), (64, 128, 2), (64, 128, 1)],
        MatrixUnit.MMA: [(128, 256, stages), (64, 128, stages)],
        MatrixUnit.MFMA: [(64, 256, stages), (64, 128, stages), (32, 128, stages)],
    }[target.matrix_unit]
    for padded_heads, block_q in _query_tiles(heads, target):
        for block_n, threads, num_stages in shapes:
            yield ScoresSchedule(padded_heads, block_q, block_n, num_stages, threads)


def scores_fault(schedule: ScoresSchedule, target: Target) -> str | None:
    """Why the compiler makes a wrong kernel of `schedule` or none, in words; None if it makes a right one."""
    if target.is_cpu:
        return None
    if schedule.rows % 16:
        return f"{schedule.rows} rows of queries and heads, no multiple of 16: of 8 modulo 16 wgmma gives wrong numbers"
    granule = 16 * schedule.threads // target.warp_size  # a warp takes 16 keys, and all heads of them
    if schedule.block_n % granule:
        return f"{schedule.threads} threads cannot share {schedule.block_n} keys, {granule} at a time"
    if schedule.num_stages > 1 and target.matrix_unit is not MatrixUnit.WGMMA:
        return f"{schedule.num_stages} stages: a loop as long as its block's keys is pipelined over one at most"
    return None


def backward_candidates(heads: int, target: Target) -> Iterator[BackwardSchedule]:
    """Every schedule of the backward kernel in question on `target`, best first; not all share out evenly."""
    if target.is_cpu:
        yield BackwardSchedule(heads, 32, 1)
        return
    fewest = round_up(heads, 16)
    for block_i in (64, 32):
        for padded_heads in range(fewest, fewest + 64, 16):
            for threads in (256, 128):
                yield BackwardSchedule(padded_heads, block_i, threads)


def uneven_product(schedule: BackwardSchedule, dim: int, target: Target) -> str | None:
    """The first product of `schedule` that its warps cannot share evenly, in words; None if they can share them all."""
    if target.is_cpu:
        return None
    warps = schedule.threads // target.warp_size
    keys, heads = schedule.block_i, schedule.padded_heads
    products = {"k·qᵀ": (keys, heads), "(g·w)ᵀ·k": (heads, dim), "g·w·q": (keys, dim)}
    for product, (rows, columns) in products.items():
        if not _covers(rows, columns, warps, target):
            return f"{warps} warps cannot share {product}, {rows} × {columns}, evenly"
    return None


def backward_sm90_candidates(heads: int, dim: int, target: Target) -> Iterator[BackwardSm90Schedule]:
    """Every schedule of the hand-scheduled backward kernel worth having on `target`, best first; none but on Hopper."""
    for blocks_per_sm in (3, 2, 1):
        schedule = BackwardSm90Schedule(round_up(heads, 64), SM90_KEYS, blocks_per_sm)
        if target.matrix_unit is MatrixUnit.WGMMA and backward_sm90_fault(schedule, dim) is None:
            yield schedule


def backward_sm90_fault(schedule: BackwardSm90Schedule, dim: int) -> str | None:
    """Why the kernel scheduled by hand is wrong with `schedule`, or is none, in words; None if it is right."""
    warpgroups = schedule.padded_heads // 64
    if schedule.block_i != SM90_KEYS:
        return f"{schedule.block_i} keys a tile: the four warps of a warpgroup add {SM90_KEYS} of them to dk"
    # Each warpgroup takes its share of dk's columns, and wgmma with an N of 8 modulo 16 gives wrong numbers.
    if dim % (16 * warpgroups):
        return f"{warpgroups} warpgroups cannot share {dim} columns of dk, 16 at a time"
    return None


def _covers(rows: int, columns: int, warps: int, target: Target) -> bool:
    """Whether the matrix unit can share a product of rows × columns evenly among `warps`.

    A warp owns a multiple of 16 rows and of 8 columns. wgmma, which TileLang takes from 64 rows on, has four warps to
    64 rows, and columns in multiples of 16: of 8 modulo 16 it gives wrong numbers.
    """
    if target.matrix_unit is MatrixUnit.WGMMA and rows >= 64:
        return rows % 64 == 0 and columns % (16 * warps // 4) == 0
    width = 16 if target.matrix_unit is MatrixUnit.MFMA else 8
    splits = [(down, warps // down) for down in range(1, warps + 1) if warps % down == 0]
    return any(rows // 16 % down == 0 and columns // width % across == 0 for down, across in splits)


def select_schedules(target: Target) -> tuple[SelectSchedule, ...]:
    """The schedules of the selection kernel on `target`, one for each class of widths, the narrowest first.

    Blocks are small and many: the kernel's steps are short and end in barriers, and a row read a second time comes from
    the cache. None for gfx942, whose wavefronts have 64 lanes: the steps are written for warps of 32.
    """
    if target.warp_size not in (1, 32):
        return ()
    # Of the widest, twice as many candidates as keys do not fit every device of a portable target: there a row is
    # narrowed until as many are left as are wanted.
    most = 4096 if target.is_portable else 8192
    # widest, capacity, bins, threads, values; 2 · widest / threads, the groups of a thread, must divide the values.
    shapes = ((512, 2048, 1024, 256, 16), (2048, 4096, 2048, 512, 16), (4096, most, 4096, 512, 16))
    if target.is_cpu:
        return tuple(SelectSchedule(widest, capacity, bins, CROWD, 1, 32, 1) for widest, capacity, bins, _, _ in shapes)
    # As many blocks as registers and shared memory allow; at Hopper's numbers ptxas spills on sm_100a, and at those of
    # sm_100a it spills when it makes Hopper's code of sm_80's kernels. 99 KiB hold one wide block in any case.
    blocks = (4, 1, 1) if target.is_portable else (4, 2, 1)
    if target.matrix_unit is MatrixUnit.WGMMA:
        blocks = (5, 3, 1)
    return tuple(
        SelectSchedule(widest, capacity, bins, CROWD, threads, values, min_blocks)
        for (widest, capacity, bins, threads, values), min_blocks in zip(shapes, blocks, strict=True)
    )


def serving(schedules: Sequence[SelectSchedule], topk: int) -> SelectSchedule | None:
    """The schedule that selects `topk` keys: the first that is wide enough."""
    return next((schedule for schedule in schedules if schedule.widest >= topk), None)


def selection_fault(schedule: SelectSchedule, target: Target) -> str | None:
    """Why no kernel can have `schedule`, in words; None if one can."""
    capacity, bins, threads, values = schedule.capacity, schedule.bins, schedule.threads, schedule.values
    if capacity & (capacity - 1) or bins & (bins - 1):
        return f"capacity {capacity} and bins {bins} must be powers of two"
    if schedule.widest > capacity:
        return f"{schedule.widest} keys do not fit into a capacity of {capacity}"
    if values % 4:
        return f"{values} values are no whole loads of 4"
    if target.is_cpu:
        return None
    if bins % threads:
        return f"{threads} threads cannot share {bins} bins evenly"
    # A thread keeps the greatest of each of its groups of scores: there are two for each key that may be wanted.
    groups = 2 * schedule.widest // threads
    if not groups or values % groups:
        return f"{values} values of a thread cannot be shared by {groups} groups"
    return None
