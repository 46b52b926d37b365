"""Compile the kernels of a package for each of its targets, and report what the compiler made of them."""

import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from v4gen.plan.target import TARGETS, Target
from v4gen.run.lower import ALL_GRADIENTS, Lowered, kernels_for, lower, quiet
from v4gen.run.package import Package, imported_package

NVCC_TIMEOUT = 600  # seconds; the largest kernel of the library takes about ten
MATRIX_INSTRUCTIONS = {"wgmma": r"\bwgmma\.mma_async", "mma": r"\bmma\.sync"}


class Stage(StrEnum):
    """How far a kernel got."""

    COMPILED = "compiled"
    LOWERED = "lowered"
    FAILED = "failed"


@dataclass(frozen=True)
class Resources:
    """What ptxas reports: registers a thread; spills, stack and shared memory in bytes; instructions by kind."""

    registers: int
    spill_bytes: int
    shared_memory: int
    instructions: dict[str, int]


@dataclass(frozen=True)
class KernelReport:
    """One kernel on one target. `problem` says what is wrong with it, in one sentence; empty if nothing is."""

    kernel: str
    target: str
    stage: Stage
    seconds: float
    digest: str = ""
    resources: Resources | None = None
    problem: str = field(default="")

    @property
    def passed(self) -> bool:
        return not self.problem

    def as_data(self) -> dict[str, Any]:
        """JSON-ready data, keys in a fixed order."""
        return asdict(self) | {"passed": self.passed}


def compile_package(
    package_dir: Path, targets: Sequence[str], nvcc: Path | None, *, reproducible: bool
) -> Iterator[KernelReport]:
    """Compile the kernels of the package in `package_dir` for `targets`, one report at a time as they get done.

    With `reproducible`, those of reproducible sums are among them.

    The CPU's kernels are compiled into TileLang's cache, ready to run. A CUDA target is lowered and, where there is an
    `nvcc`, compiled to a cubin with every warning of ptxas about spills an error; other targets are lowered. A kernel
    that fails is a report that says so; nothing is raised for it.
    """
    with imported_package(package_dir) as package:
        for target in (TARGETS[name] for name in targets):
            if target.is_cpu:
                for kernel in kernels_for(target, reproducible=reproducible):
                    yield _compile_to_run(package, kernel, target.name)
            else:
                kernels = kernels_for(target, reproducible=reproducible)
                yield from compile_for_gpu(package, target, kernels, nvcc if target.is_cuda else None)


def compile_kernel(
    package_dir: Path, kernel: str, target_name: str, nvcc: Path | None, *, to_run: bool
) -> KernelReport:
    """Compile one of the package's kernels, as `compile_package` does.

    With `to_run`, a GPU's that passes goes into TileLang's cache too, ready to run; without `nvcc` it goes there only.
    """
    target = TARGETS[target_name]
    with imported_package(package_dir) as package:
        if target.is_cpu or (to_run and nvcc is None):
            return _compile_to_run(package, kernel, target_name)
        (report,) = compile_for_gpu(package, target, [kernel], nvcc if target.is_cuda else None, target.codes)
        if not (to_run and report.passed):
            return report
        ready = _compile_to_run(package, kernel, target_name)
        return replace(report, stage=ready.stage, seconds=report.seconds + ready.seconds, problem=ready.problem)


def _compile_to_run(package: Package, kernel: str, target: str) -> KernelReport:
    start = time.perf_counter()
    fwd, bwd, indexer = package.fwd, package.bwd, package.indexer
    try:
        with quiet():
            if kernel == "scores":
                fwd.tl_indexer_fwd_impl(fwd.HEADS, fwd.DIM, target=target)
            elif kernel == "select":
                indexer.tilelang_indexer_topk.tl_indexer_topk_impl(indexer.TOPK, target=target)
            else:
                bwd.tl_indexer_bwd_impl(bwd.HEADS, bwd.DIM, 1, needs=ALL_GRADIENTS, target=target)
    except Exception as error:  # the package's own code and a compiler: anything may come out
        return KernelReport(kernel, target, Stage.FAILED, time.perf_counter() - start, problem=_last_line(error))
    return KernelReport(kernel, target, Stage.COMPILED, time.perf_counter() - start)


def compile_for_gpu(
    package: Package, target: Target, kernels: Sequence[str], nvcc: Path | None, codes: Sequence[str] = ()
) -> Iterator[KernelReport]:
    """Lower the kernels one after the other, TileLang being one at a time, while nvcc works on those lowered before.

    `codes` are those of `assemble`.
    """
    with ThreadPoolExecutor(max_workers=2) as pool:
        pending = []
        for kernel in kernels:
            start = time.perf_counter()
            try:
                lowered = lower(package, kernel, target)
            except Exception as error:  # a compiler: anything may come out of it
                seconds = time.perf_counter() - start
                yield KernelReport(kernel, target.name, Stage.FAILED, seconds, problem=_last_line(error))
                continue
            pending.append(pool.submit(_finish, lowered, target, nvcc, codes, time.perf_counter() - start))
        for future in pending:
            yield future.result()


def _finish(lowered: Lowered, target: Target, nvcc: Path | None, codes: Sequence[str], seconds: float) -> KernelReport:
    if nvcc is None:
        return KernelReport(lowered.kernel, lowered.target, Stage.LOWERED, seconds, lowered.digest)
    start = time.perf_counter()
    try:
        resources = assemble(lowered, target, nvcc, codes)
    except (subprocess.SubprocessError, OSError) as error:
        problem = _last_line(error)
        return KernelReport(lowered.kernel, lowered.target, Stage.FAILED, seconds, lowered.digest, problem=problem)
    seconds += time.perf_counter() - start
    problem = _over_budget(resources, target)
    return KernelReport(
        lowered.kernel, lowered.target, Stage.COMPILED, seconds, lowered.digest, resources, problem=problem
    )


def assemble(lowered: Lowered, target: Target, nvcc: Path, codes: Sequence[str] = ()) -> Resources:
    """Compile lowered CUDA source in a temporary folder and read what ptxas says.

    It makes machine code for the architecture of the target, or for `codes`: the resources are then the most that one
    of them takes. Raises subprocess.CalledProcessError, with nvcc's words as its output, when it does not compile.
    """
    from tilelang.env import CUTLASS_INCLUDE_DIR, TILELANG_TEMPLATE_PATH

    assert target.arch is not None
    number = target.arch.removeprefix("sm_")
    with tempfile.TemporaryDirectory(prefix="v4gen-") as folder:
        source = Path(folder) / "kernel.cu"
        source.write_text(lowered.source, encoding="utf-8")
        # The flags with which TileLang compiles the same source at run time.
        command = [str(nvcc), "-std=c++20", "-w", "-fatbin", "--keep", "--keep-dir", folder]
        command += ["--use_fast_math"] * lowered.fast_math
        command += [f"-gencode=arch=compute_{number},code=[{','.join(codes or [target.arch])}]", "-Xptxas", "-v"]
        command += [f"-I{CUTLASS_INCLUDE_DIR}", f"-I{TILELANG_TEMPLATE_PATH}"]
        command += [str(source), "-o", str(source.with_suffix(".fatbin"))]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=NVCC_TIMEOUT)
        if done.returncode != 0:
            raise subprocess.CalledProcessError(done.returncode, "nvcc", done.stderr)
        ptx = source.with_suffix(".ptx").read_text(encoding="utf-8")
    return _read_resources(done.stderr, ptx, lowered.dynamic_shared_memory)


def _read_resources(said: str, ptx: str, dynamic_shared_memory: int) -> Resources:
    def largest(pattern: str) -> int:
        return max((int(number) for number in re.findall(pattern, said)), default=0)

    spills = sum(int(number) for number in re.findall(r"(\d+) bytes spill (?:stores|loads)", said))
    return Resources(
        registers=largest(r"Used (\d+) registers"),
        spill_bytes=spills,
        shared_memory=largest(r"(\d+) bytes smem") + dynamic_shared_memory,
        instructions={name: len(re.findall(pattern, ptx)) for name, pattern in MATRIX_INSTRUCTIONS.items()},
    )


def _over_budget(resources: Resources, target: Target) -> str:
    if resources.spill_bytes:
        return f"{resources.spill_bytes} bytes of registers are spilled to memory"
    if resources.shared_memory > target.shared_memory:
        return f"{resources.shared_memory} bytes of shared memory, {target.name} has {target.shared_memory}"
    return ""


def _last_line(error: Exception) -> str:
    said = error.output if isinstance(error, subprocess.CalledProcessError) else str(error)
    lines = [line.strip() for line in str(said).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
