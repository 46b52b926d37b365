"""Budgets: what a schedule needs against what a target has. Estimates err on the high side; the compiler has the last
word, and a build reports its figures beside these."""

from dataclasses import dataclass

from v4gen.plan.schedule import BackwardSchedule, BackwardSm90Schedule, ScoresSchedule, SelectSchedule
from v4gen.plan.target import MatrixUnit, Target

FP32_BYTES = 4
HALF_BYTES = 2  # bfloat16 and float16

# Addresses, loop counters and operands in flight, read off compiled kernels of both kinds.
SCRATCH_REGISTERS = 32
SM90_SCRATCH_REGISTERS = 24

# What the barriers of tiles that TMA fills take, with the alignment of what lies behind them: read off lowered kernels.
BARRIER_BYTES = 1024

# Shared memory that the device keeps for itself in each block.
RESERVED_BYTES = 1024


@dataclass(frozen=True)
class Usage:
    """Shared memory in bytes per block and registers per thread."""

    shared_memory: int
    registers: int


@dataclass(frozen=True)
class Budget:
    """The limits that a schedule's `Usage` is held against, in the same units."""

    shared_memory: int
    registers: int

    def admits(self, usage: Usage) -> bool:
        return self.fault(usage) is None

    def fault(self, usage: Usage) -> str | None:
        """By what `usage` exceeds the budget, in words; None when it stays within."""
        excess = []
        if usage.shared_memory > self.shared_memory:
            excess.append(f"{usage.shared_memory} bytes of shared memory, over {self.shared_memory}")
        if self.registers and usage.registers > self.registers:
            excess.append(f"{usage.registers} registers a thread, over {self.registers}")
        return " and ".join(excess) or None


def budget(target: Target, threads: int) -> Budget:
    """The budget of a block of `threads` computing threads on `target`; 0 registers means that nothing limits them.

    On Hopper a producer warpgroup joins and leaves its registers to the others (`setmaxnreg` works in steps of 8).
    """
    if target.is_cpu:
        return Budget(target.shared_memory, 0)
    registers = target.registers_per_block // threads
    if target.matrix_unit is MatrixUnit.WGMMA:
        producer = 24 * 128
        registers = (target.registers_per_block - producer) // threads // 8 * 8
    return Budget(target.shared_memory, min(target.registers_per_thread, registers))


def element_bytes(target: Target) -> int:
    """Bytes of one element of q or k inside a tile: the CPU computes in float32."""
    return FP32_BYTES if target.is_cpu else HALF_BYTES


def scores_usage(schedule: ScoresSchedule, dim: int, target: Target) -> Usage:
    """Shared memory: the query tile and `num_stages` key tiles, and the barriers where TMA fills them.

    Registers: products, weighted products, weights.
    """
    element = element_bytes(target)
    query_tile = schedule.rows * dim * element
    key_tile = schedule.block_n * dim * element
    fragments = 2 * schedule.rows * schedule.block_n
    if target.is_cpu:
        return Usage(query_tile + key_tile + fragments * FP32_BYTES, 0)
    barriers = BARRIER_BYTES if target.has_tma else 0
    return Usage(
        query_tile + max(schedule.num_stages, 1) * key_tile + barriers,
        fragments // schedule.threads + SCRATCH_REGISTERS,
    )


def backward_usage(schedule: BackwardSchedule, dim: int, target: Target) -> Usage:
    """Shared memory: q, gathered k, g·w, and the staging of dw. Registers: products, g·w, relu·g, dq and dk."""
    element = element_bytes(target)
    heads, keys = schedule.padded_heads, schedule.block_i
    tiles = (heads * dim + keys * dim + keys * heads) * element
    staging = keys * heads * FP32_BYTES + 2 * keys * FP32_BYTES
    fragments = 3 * keys * heads + heads * dim + keys * dim
    if target.is_cpu:
        return Usage(tiles + staging + fragments * FP32_BYTES, 0)
    return Usage(tiles + staging, fragments // schedule.threads + SCRATCH_REGISTERS)


def backward_sm90_budget(target: Target, schedule: BackwardSm90Schedule) -> Budget:
    """A block's share when `blocks_per_sm` of them run at once: each takes a KiB of shared memory besides its own."""
    blocks = schedule.blocks_per_sm
    shared = (target.shared_memory + RESERVED_BYTES) // blocks - RESERVED_BYTES
    registers = target.registers_per_block // (blocks * schedule.threads) // 8 * 8
    return Budget(shared, min(target.registers_per_thread, registers))


def backward_sm90_usage(schedule: BackwardSm90Schedule, dim: int, target: Target) -> Usage:
    """Shared memory: q, k, g·w, the rows of dk with 8 columns of padding, and a KiB of indices and g.

    Registers: dq, dk and the halves of g·w, alive at once, or dq with the products twice. A row of k that its readers
    do not share evenly costs addresses on top: read off compiled kernels, as the scratch registers are.
    """
    element = element_bytes(target)
    heads, keys, threads = schedule.padded_heads, schedule.block_i, schedule.threads
    rows = keys * (dim + 8) * FP32_BYTES
    shared = (heads * dim + keys * dim + heads * keys) * element + rows + RESERVED_BYTES
    dq, dk, products = heads * dim, keys * dim, heads * keys
    fragments = max(dq + dk + products // 2, dq + 2 * products) // threads
    readers = dim // 8  # 16 bytes each
    addresses = 0 if threads % readers == 0 else 6 * keys * readers // threads
    return Usage(shared, fragments + addresses + SM90_SCRATCH_REGISTERS)


def select_usage(schedule: SelectSchedule) -> Usage:
    """Shared memory: two buffers of int64 candidates, bins, what warps tell each other. Registers: scores, maxima."""
    warps = max(schedule.threads // 32, 1)
    shared = 2 * 8 * schedule.capacity + 4 * schedule.bins + 4 * (2 * warps + 8)
    groups = 2 * schedule.widest // schedule.threads
    return Usage(shared, schedule.values + groups + SCRATCH_REGISTERS)
