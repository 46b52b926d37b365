"""Lower an emitted kernel to the source text of a target; needs tilelang and no GPU."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from v4gen.plan.target import Target
from v4gen.run.package import Package

KERNELS = ("scores", "backward")
ALL_GRADIENTS = (True, True, True)


@dataclass(frozen=True)
class Lowered:
    """One kernel's source for one target, with the dynamic shared memory that it is launched with, in bytes."""

    kernel: str
    target: str
    source: str
    dynamic_shared_memory: int

    @property
    def digest(self) -> str:
        """sha256 of the source. The text is a function of the kernel and TileLang's version alone."""
        return hashlib.sha256(self.source.encode("utf-8")).hexdigest()


def trace(package: Package, kernel: str, target: str) -> Any:
    """The TileLang function of `kernel` with the schedule that the package has for `target`."""
    if kernel == "scores":
        module = package.fwd
        return module.get_scores_kernel(module.HEADS, module.DIM, target, module.SCHEDULES[target])
    module = package.bwd
    return module.get_backward_kernel(module.HEADS, module.DIM, target, module.SCHEDULES[target], ALL_GRADIENTS)


def lower(package: Package, kernel: str, target: Target) -> Lowered:
    """`kernel` lowered for `target`. Raises whatever TileLang raises on a kernel that it cannot lower."""
    from tilelang import tvm
    from tilelang.engine.lower import lower as tilelang_lower

    module = package.fwd if kernel == "scores" else package.bwd
    function = trace(package, kernel, target.name)
    context = tvm.transform.PassContext(opt_level=3, config=module.pass_configs)
    with quiet(), context, tvm.target.Target(target.tilelang):
        artifact = tilelang_lower(function, target=target.tilelang)
    shared = [int(f.attrs.get("dyn_shared_memory_buf", 0)) for f in artifact.device_mod.functions.values()]
    return Lowered(kernel, target.name, artifact.kernel_source, max(shared, default=0))


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
