"""Schedules: how a kernel's work is cut into tiles. Candidates are listed best first; the budget picks."""

from collections.abc import Iterator
from dataclasses import dataclass

from v4gen.plan.target import MatrixUnit, Target

# The tile of keys × (queries · heads) that one block multiplies is at most this wide: two fp32 fragments of it
# (products and weighted products) must stay in registers.
MAX_ROWS = 128


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


def _round_up(value: int, multiple: int) -> int:
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
        for padded in range(_round_up(heads, 8), _round_up(heads, 16) + 1, 8)
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
        MatrixUnit.WGMMA: [(192, 384, 2), (128, 256, 2), (64, 128, 2), (64, 128, 1)],
        MatrixUnit.MMA: [(128, 256, stages), (64, 128, stages)],
        MatrixUnit.MFMA: [(64, 256, stages), (64, 128, stages), (32, 128, stages)],
    }[target.matrix_unit]
    for padded_heads, block_q in _query_tiles(heads, target):
        for block_n, threads, num_stages in shapes:
            yield ScoresSchedule(padded_heads, block_q, block_n, num_stages, threads)


def backward_candidates(heads: int, dim: int, target: Target) -> Iterator[BackwardSchedule]:
    """Every schedule of the backward kernel worth having on `target`, best first."""
    if target.is_cpu:
        yield BackwardSchedule(heads, 32, 1)
        return
    fewest = _round_up(heads, 16)
    for block_i in (64, 32):
        for padded_heads in range(fewest, fewest + 64, 16):
            for threads in (256, 128):
                # k·qᵀ, (g·w)ᵀ·k and g·w·q, each cut over all warps.
                products = ((block_i, padded_heads), (padded_heads, dim), (block_i, dim))
                if all(_covers(rows, columns, threads // target.warp_size, target) for rows, columns in products):
                    yield BackwardSchedule(padded_heads, block_i, threads)


def _covers(rows: int, columns: int, warps: int, target: Target) -> bool:
    """Whether the matrix unit can share a product of rows × columns evenly among `warps`.

    A warp owns a multiple of 16 rows and of 8 columns. wgmma takes four warps to 64 rows, and columns in multiples of
    16: of 8 modulo 16 it gives wrong numbers.
    """
    if target.matrix_unit is MatrixUnit.WGMMA and rows % 64 == 0:
        return columns % (16 * warps // 4) == 0
    width = 16 if target.matrix_unit is MatrixUnit.MFMA else 8
    splits = [(down, warps // down) for down in range(1, warps + 1) if warps % down == 0]
    return any(rows // 16 % down == 0 and columns // width % across == 0 for down, across in splits)
