"""Target facts: what each family of device offers a kernel, as a table.

Sources: NVIDIA CUDA C++ Programming Guide, appendix "Compute Capabilities" (shared memory per block, registers per
thread and per block); AMD CDNA3 ISA reference (LDS, VGPRs).
"""

from dataclasses import dataclass
from enum import Enum

KIB = 1024


class MatrixUnit(Enum):
    """The instruction family that a target's `T.gemm` lowers to."""

    SCALAR = "scalar"  # plain loops, vectorised by the C compiler
    MMA = "mma"  # one warp, operands in registers
    WGMMA = "wgmma"  # one warpgroup of four warps, operands in shared memory
    MFMA = "mfma"  # one wavefront of 64 lanes


@dataclass(frozen=True)
class Target:
    """One family of devices.

    `arch` is the compiler's name of the architecture (`None` on the CPU). Shared memory is in bytes per block;
    registers are 32-bit.
    """

    name: str
    kind: str
    arch: str | None
    matrix_unit: MatrixUnit
    shared_memory: int
    registers_per_thread: int
    registers_per_block: int
    warp_size: int
    has_tma: bool  # copies whole tiles without threads: Tensor Memory Accelerator

    @property
    def tilelang(self) -> str | dict[str, str]:
        """The target as TileLang takes it."""
        if self.arch is None:
            return self.kind
        return {"kind": self.kind, "mcpu" if self.kind == "hip" else "arch": self.arch}

    @property
    def is_cpu(self) -> bool:
        return self.kind == "c"

    @property
    def is_cuda(self) -> bool:
        return self.kind == "cuda"


def _cuda(name: str, unit: MatrixUnit, shared_kib: int, *, has_tma: bool) -> Target:
    return Target(name, "cuda", name, unit, shared_kib * KIB, 255, 65_536, 32, has_tma)


# The CPU's "shared memory" is the part of a thread's default 8 MiB stack that the tile buffers may take.
TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target("cpu", "c", None, MatrixUnit.SCALAR, 4 * KIB * KIB, 0, 0, 1, False),
        _cuda("sm_80", MatrixUnit.MMA, 163, has_tma=False),
        _cuda("sm_90a", MatrixUnit.WGMMA, 227, has_tma=True),
        # sm_100's own matrix unit works on tensor memory; a body of fragments lowers to mma there.
        _cuda("sm_100a", MatrixUnit.MMA, 227, has_tma=True),
        Target("gfx942", "hip", "gfx942", MatrixUnit.MFMA, 64 * KIB, 512, 131_072, 64, False),
    )
}
