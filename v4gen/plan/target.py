"""Target facts: what each family of device offers a kernel, as a table.

Sources: NVIDIA CUDA C++ Programming Guide, appendix "Compute Capabilities" (shared memory per block, registers per
thread and per block); AMD CDNA3 ISA reference (LDS, VGPRs). Peak rates are those of the datasheets that `Peak` names.
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
class Peak:
    """What the datasheet of one device promises: nobody measured it here, and no kernel reaches it.

    `flops` are bfloat16 and float16 operations a second of the matrix unit on dense operands (half of what is printed
    for sparse ones), `bandwidth` bytes a second of device memory.
    """

    device: str
    source: str
    flops: float
    bandwidth: float


@dataclass(frozen=True)
class Target:
    """One family of devices.

    `arch` is the compiler's name of the architecture (`None` on the CPU). Shared memory is in bytes per block;
    registers are 32-bit. `common_shared_memory` is what every device that takes this target's schedules has.
    `peak` is that of the family's usual device; CPUs differ too much to have one.
    """

    name: str
    kind: str
    arch: str | None
    matrix_unit: MatrixUnit
    shared_memory: int
    common_shared_memory: int
    registers_per_thread: int
    registers_per_block: int
    warp_size: int
    has_tma: bool  # copies whole tiles without threads: Tensor Memory Accelerator
    peak: Peak | None

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

    @property
    def devices(self) -> str:
        """The devices that take its schedules, in words."""
        if self.is_cpu:
            return "CPUs"
        if self.is_portable:
            return f"GPUs from capability {self.name[3:-1]}.{self.name[-1]} on that have no target of their own"
        return f"GPUs of capability {self.name[3:-2]}.{self.name[-2]} alone" if self.is_cuda else f"{self.arch} alone"

    @property
    def codes(self) -> tuple[str, ...]:
        """The machine code that its kernels are made into: also for later generations where they take them."""
        return ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120") if self.is_portable else (self.name,)

    @property
    def is_portable(self) -> bool:
        """Whether later devices of other families take its schedules: an architecture with a letter is for itself."""
        return self.is_cuda and self.name[-1].isdigit()


def _cuda(
    name: str, unit: MatrixUnit, shared_kib: int, peak: Peak, *, has_tma: bool, common_kib: int | None = None
) -> Target:
    common_kib = common_kib or shared_kib
    return Target(name, "cuda", name, unit, shared_kib * KIB, common_kib * KIB, 255, 65_536, 32, has_tma, peak)


_A100 = Peak("A100 80GB SXM", "NVIDIA A100 datasheet", 312e12, 2.039e12)
_H200 = Peak("H200 SXM", "NVIDIA H200 datasheet", 989e12, 4.8e12)
_B200 = Peak("HGX B200", "NVIDIA Blackwell datasheet", 2250e12, 7.7e12)
_MI300X = Peak("Instinct MI300X", "AMD Instinct MI300X data sheet", 1307e12, 5.3e12)

# The CPU's "shared memory" is the part of a thread's default 8 MiB stack that the tile buffers may take.
TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target("cpu", "c", None, MatrixUnit.SCALAR, 4 * KIB * KIB, 4 * KIB * KIB, 0, 0, 1, False, None),
        # Also for what has no target of its own: 99 KiB on 8.6, 8.9 and 12.0, and what 9.0 and 10.0 have beyond.
        _cuda("sm_80", MatrixUnit.MMA, 163, _A100, has_tma=False, common_kib=99),
        _cuda("sm_90a", MatrixUnit.WGMMA, 227, _H200, has_tma=True),
        # sm_100's own matrix unit works on tensor memory; a body of fragments lowers to mma there.
        _cuda("sm_100a", MatrixUnit.MMA, 227, _B200, has_tma=True),
        Target("gfx942", "hip", "gfx942", MatrixUnit.MFMA, 64 * KIB, 64 * KIB, 512, 131_072, 64, False, _MI300X),
    )
}
