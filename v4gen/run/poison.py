"""Fresh memory made hostile, so that an element nobody wrote and a write past the end both show.

torch can fill fresh memory itself, but only while deterministic algorithms are on, and that switches a package to its
deterministic backward: the default one would go unexamined. A dispatch mode does not reach allocations made inside a
custom operator. So the allocating functions are replaced for the duration of one call; those are what the package, and
TileLang for it, get their outputs from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import nan, prod
from typing import Any

import torch
from torch import Tensor

BAND = 512
"""Elements of poison on either side of an allocation; a multiple of every alignment that kernels ask for."""

INTEGER_POISON = 0x55


def _fill(tensor: Tensor) -> Tensor:
    if tensor.is_floating_point():
        return tensor.fill_(nan)
    return tensor.fill_(INTEGER_POISON) if tensor.dtype != torch.bool else tensor.fill_(True)


def _is_poison(tensor: Tensor) -> Tensor:
    return tensor.isnan() if tensor.is_floating_point() else tensor == INTEGER_POISON


class PoisonedMemory:
    """Hands out poisoned allocations with guard bands, and tells whether a band was written."""

    def __init__(self) -> None:
        self._buffers: list[tuple[Tensor, int]] = []

    def overruns(self) -> int:
        """How many elements beside the allocations have been written."""
        return sum(int((~_is_poison(band)).sum()) for band in self._bands())

    def _bands(self) -> Iterator[Tensor]:
        for buffer, used in self._buffers:
            if buffer.dtype != torch.bool:
                yield buffer[:BAND]
                yield buffer[BAND + used :]

    def _banded(self, allocate: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
        plain = allocate(*args, **kwargs)
        if kwargs.get("out") is not None or not plain.is_contiguous() or plain.device.type == "meta":
            return _fill(plain)
        used = prod(plain.shape)
        buffer = _fill(torch.zeros(used + 2 * BAND, dtype=plain.dtype, device=plain.device))
        self._buffers.append((buffer, used))
        # set_ and not a slice: autograd and in-place operators treat a view differently from a tensor of its own
        return plain.set_(buffer.untyped_storage(), BAND, plain.shape, plain.stride())


@contextmanager
def poisoned_memory() -> Iterator[PoisonedMemory]:
    """Within the context `torch.empty` and its relatives hand out poisoned memory."""
    memory = PoisonedMemory()
    owners: tuple[tuple[Any, str], ...] = (
        (torch, "empty"),
        (torch, "empty_like"),
        (torch, "empty_strided"),
        (torch.Tensor, "new_empty"),
    )
    originals = [(owner, name, getattr(owner, name), name in vars(owner)) for owner, name in owners]
    for owner, name, allocate, _ in originals:
        setattr(owner, name, _poisoning(memory, allocate))
    try:
        yield memory
    finally:
        for owner, name, allocate, own in originals:
            setattr(owner, name, allocate) if own else delattr(owner, name)


def _poisoning(memory: PoisonedMemory, allocate: Callable[..., Tensor]) -> Callable[..., Tensor]:
    # a plain function, so that it binds as a method where it replaces one
    def poisoned(*args: Any, **kwargs: Any) -> Tensor:
        return memory._banded(allocate, *args, **kwargs)

    return poisoned
