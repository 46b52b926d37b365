"""Budgets: what a schedule needs against what a target has. Estimates err on the high side; the compiler has the last
word, and a build reports its figures beside these."""

from dataclasses import dataclass

from v4gen.plan.schedule import BackwardSchedule, ScoresSchedule
from v4gen.plan.target import MatrixUnit, Target

FP32_BYTES = 4
HALF_BYTES = 2  # bfloat16 and float16

# Addresses, loop counters and operands in flight, read off compiled kernels of both kinds.
SCRATCH_REGISTERS = 32


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
        return usage.shared_memory <= self.shared_memory and (self.registers == 0 or usage.registers <= self.registers)


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
    """Shared memory: the query tile and `num_stages` key tiles. Registers: products, weighted products, weights."""
    element = element_bytes(target)
    query_tile = schedule.rows * dim * element
    key_tile = schedule.block_n * dim * element
    fragments = 2 * schedule.rows * schedule.block_n
    if target.is_cpu:
        return Usage(query_tile + key_tile + fragments * FP32_BYTES, 0)
    return Usage(
        query_tile + max(schedule.num_stages, 1) * key_tile,
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
