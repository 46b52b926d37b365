"""Lower an emitted kernel to the source text of a target; needs tilelang and no GPU."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from v4gen.plan.schedule import select_schedules
from v4gen.plan.target import Target
from v4gen.run.package import Package

KERNELS = ("scores", "select", "backward")
# What reproducible sums take on a GPU; a CPU's sums are so anyway.
GPU_KERNELS = (*KERNELS, "backward_reach", "backward_bound", "backward_deterministic")
ALL_GRADIENTS = (True, True, True)


@dataclass(frozen=True)
class Lowered:
    """One kernel's source for one target.

    It is launched with so many bytes of dynamic shared memory, and compiled with fast math or without.
    """

    kernel: str
    target: str
    source: str
    dynamic_shared_memory: int
    fast_math: bool

    @property
    def digest(self) -> str:
        """sha256 of the source. The text is a function of the kernel and TileLang's version alone."""
        return hashlib.sha256(self.source.encode("utf-8")).hexdigest()


def kernels_for(target: Target, *, reproducible: bool) -> tuple[str, ...]:
    """The kernels that a package has for `target`; with `reproducible`, also those of reproducible sums.

    Where there is no schedule, selection is by sorting.
    """
    kernels = GPU_KERNELS if reproducible and not target.is_cpu else KERNELS
    return kernels if select_schedules(target) else tuple(kernel for kernel in kernels if kernel != "select")


def trace(package: Package, kernel: str, target: str, needs: tuple[bool, bool, bool] = ALL_GRADIENTS) -> Any:
    """The TileLang function of `kernel` with the schedule that the package has for `target`.

    `needs` says which of the gradients of q, weights and k a backward kernel computes.
    """
    return _function_and_configs(package, kernel, target, needs)[0]


def _function_and_configs(
    package: Package, kernel: str, target: str, needs: tuple[bool, bool, bool] = ALL_GRADIENTS
) -> tuple[Any, dict[Any, Any]]:
    fwd, bwd = package.fwd, package.bwd
    if kernel == "scores":
        return fwd.get_scores_kernel(fwd.HEADS, fwd.DIM, target, fwd.SCHEDULES[target]), fwd.pass_configs
    if kernel == "select":
        indexer, topk = package.indexer, package.indexer.tilelang_indexer_topk
        schedule = topk.schedule_for(target, indexer.TOPK)
        return topk.get_select_kernel(target, schedule), topk.pass_configs
    if kernel == "backward_reach":
        return bwd._fixed_point.get_reach_kernel(bwd.HEADS, bwd.DIM), bwd._fixed_point.pass_configs
    if kernel == "backward_bound":
        return bwd._fixed_point.get_bound_kernel(), bwd._fixed_point.pass_configs
    get_kernel, configs, schedule = bwd.kernel_for(target)
    deterministic = kernel == "backward_deterministic"
    return get_kernel(bwd.HEADS, bwd.DIM, target, schedule, needs, deterministic), configs


def identity(package: Package, kernel: str, target: Target) -> str:
    """sha256 of all that `lower` starts from: kernels of one identity lower to one source, in one TileLang version."""
    function, configs = _function_and_configs(package, kernel, target.name)
    settings = sorted((str(key), str(value)) for key, value in configs.items())
    return hashlib.sha256(f"{target.name} {settings}\n{function.script()}".encode()).hexdigest()


def lower(package: Package, kernel: str, target: Target) -> Lowered:
    """`kernel` lowered for `target`. Raises whatever TileLang raises on a kernel that it cannot lower."""
    from tilelang import tvm
    from tilelang.engine.lower import lower as tilelang_lower

    function, configs = _function_and_configs(package, kernel, target.name)
    context = tvm.transform.PassContext(opt_level=3, config=configs)
    with quiet(), context, tvm.target.Target(target.tilelang):
        artifact = tilelang_lower(function, target=target.tilelang)
    shared = [int(f.attrs.get("dyn_shared_memory_buf", 0)) for f in artifact.device_mod.functions.values()]
    fast_math = bool(configs.get("tl.enable_fast_math", False))
    return Lowered(kernel, target.name, artifact.kernel_source, max(shared, default=0), fast_math)


@contextmanager
def quiet() -> Iterator[None]:
    """Without TileLang's progress messages: a build has a progress display of its own."""
    import logging

    # On the handlers: loggers below `tilelang` set levels of their own. They print to standard output.
    levels = [(handler, handler.level) for handler in logging.getLogger("tilelang").handlers]
    for handler, _ in levels:
        handler.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for handler, level in levels:
            handler.setLevel(level)
