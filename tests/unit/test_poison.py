"""Poisoned memory shows what was not written and what was written beside it."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from v4gen.run.poison import poisoned_memory


def allocations() -> list[Tensor]:
    like = torch.zeros(3, 4)
    return [
        torch.empty(3, 4),
        torch.empty((3, 4), dtype=torch.bfloat16),
        torch.empty(3, 4, dtype=torch.int32),
        torch.empty_like(like),
        torch.empty_strided((3, 4), (1, 3)),
        like.new_empty((3, 4)),
    ]


def test_fresh_memory_is_poisoned() -> None:
    with poisoned_memory() as memory:
        tensors = allocations()
    for tensor in tensors:
        assert tensor.shape == (3, 4)
        assert tensor.isnan().all() if tensor.is_floating_point() else (tensor == 0x55).all()
        assert not tensor._is_view()
    assert memory.overruns() == 0


@pytest.mark.parametrize("place", [-1, 12])
@pytest.mark.parametrize("allocate", [torch.empty, torch.zeros])
def test_a_write_past_an_end_is_counted(allocate: Callable[..., Tensor], place: int) -> None:
    with poisoned_memory() as memory:
        tensor = getattr(torch, allocate.__name__)(3, 4)
    beside = tensor.as_strided((1,), (1,), tensor.storage_offset() + place)
    beside.fill_(1)
    assert memory.overruns() == 1


def test_nothing_added_past_an_end_is_counted() -> None:
    with poisoned_memory() as memory:
        tensor = torch.zeros(3, 4)
    assert not tensor.any()
    tensor.as_strided((4,), (1,), tensor.storage_offset() - 4).add_(0.0)
    assert memory.overruns() == 2


def test_torch_is_itself_again() -> None:
    before = (torch.empty, torch.empty_like, torch.empty_strided, torch.Tensor.new_empty)
    with pytest.raises(RuntimeError, match="negative"), poisoned_memory():
        torch.empty(-1)
    assert (torch.empty, torch.empty_like, torch.empty_strided, torch.Tensor.new_empty) == before
    assert "new_empty" not in vars(torch.Tensor)


def test_poisoned_tensors_work_in_place_and_with_autograd() -> None:
    with poisoned_memory():
        result = torch.empty(2, 2)
        result.copy_(torch.ones(2, 2)).requires_grad_()
        (grad,) = torch.autograd.grad(result.square().sum(), result)
    assert torch.equal(grad, torch.full((2, 2), 2.0))
