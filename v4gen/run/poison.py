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
"""Elements of poison on either side of an allocation; a multiple of every alignment that kernels ask for.

Of floats every other one is a NaN, for reads to show, and every other one is -0.0: to add 0.0 is a write as well.
"""

INTEGER_POISON = 0x55

_zeros = torch.zeros


def _fill(tensor: Tensor) -> Tensor:
    if tensor.is_floating_point():
        return tensor.fill_(nan)
    return tensor.fill_(INTEGER_POISON) if tensor.dtype != torch.bool else tensor.fill_(True)


def _fill_band(band: Tensor) -> None:
    _fill(band)
    if band.is_floating_point():
        band[1::2] = -0.0


def _written(band: Tensor) -> int:
    """How many elements of a band are no longer what `_fill_band` left."""
    if not band.is_floating_point():
        return int((band != INTEGER_POISON).sum())
    zeros = band[1::2]
    return int((~band[::2].isnan()).sum() + ((zeros != 0) | ~zeros.signbit()).sum())


class PoisonedMemory:
    """Hands out poisoned allocations with guard bands, and tells whether a band was written."""

    def __init__(self) -> None:
        self._buffers: list[tuple[Tensor, int]] = []

    def overruns(self) -> int:
        """How many elements beside the allocations have been written."""
        return sum(_written(band) for band in self._bands())

    def _bands(self) -> Iterator[Tensor]:
        for buffer, used in self._buffers:
            if buffer.dtype != torch.bool:
                yield buffer[:BAND]
                yield buffer[BAND + used :]

    def _banded(self, allocate: Callable[..., Tensor], fresh: bool, *args: Any, **kwargs: Any) -> Tensor:
        plain = allocate(*args, **kwargs)
        if fresh:
            _fill(plain)
        if kwargs.get("out") is not None or not plain.is_contiguous() or plain.device.type == "meta":
            return plain
        used = prod(plain.shape)
        buffer = _zeros(used + 2 * BAND, dtype=plain.dtype, device=plain.device)
        buffer[BAND : BAND + used] = plain.flatten()
        self._buffers.append((buffer, used))
        for band in (buffer[:BAND], buffer[BAND + used :]):
            _fill_band(band)
        # set_ and not a slice: autograd and in-place operators treat a view differently from a tensor of its own
        return plain.set_(buffer.untyped_storage(), BAND, plain.shape, plain.stride())


@contextmanager
def poisoned_memory() -> Iterator[PoisonedMemory]:
    """Within the context `torch.empty` and its relatives hand out poisoned memory, those of `torch.zeros` banded."""
    memory = PoisonedMemory()
    owners: tuple[tuple[Any, str], ...] = (
        (torch, "empty"),
        (torch, "empty_like"),
        (torch, "empty_strided"),
        (torch.Tensor, "new_empty"),
        (torch, "zeros"),
        (torch, "zeros_like"),
        (torch.Tensor, "new_zeros"),
    )
    originals = [(owner, name, getattr(owner, name), name in vars(owner)) for owner, name in owners]
    for owner, name, allocate, _ in originals:
        setattr(owner, name, _poisoning(memory, allocate, fresh="empty" in name))
    try:
        yield memory
    finally:
        for owner, name, allocate, own in originals:
            setattr(owner, name, allocate) if own else delattr(owner, name)


def _poisoning(memory: PoisonedMemory, allocate: Callable[..., Tensor], *, fresh: bool) -> Callable[..., Tensor]:
    # a plain function, so that it binds as a method where it replaces one
    def poisoned(*args: Any, **kwargs: Any) -> Tensor:
        return memory._banded(allocate, fresh, *args, **kwargs)

    return poisoned
