"""The emitted operator inside torch: compile, export, checkpointing, autocast, saved tensors, leaks. On CPU tensors."""

import gc
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from v4gen.generated.tiny import _ops, lightning_indexer
from v4gen.generated.tiny.tilelang_indexer import V4IndexerFunction, v4_lighting_indexer
from v4gen.generated.tiny.tilelang_indexer_bwd import batched_indexer_bwd

pytestmark = pytest.mark.xdist_group("tiny")

HEADS, DIM, TOPK, RATIO = 4, 32, 8, 4
Leaves = tuple[Tensor, Tensor, Tensor]


def leaves(queries: int, batch: int = 2) -> Leaves:
    generator = torch.Generator().manual_seed(queries)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    q = normal(queries, batch, HEADS, DIM).bfloat16().requires_grad_()
    k = normal(queries // RATIO, batch, DIM).bfloat16().requires_grad_()
    return q, k, normal(queries, batch, HEADS).requires_grad_()


def loss(q: Tensor, k: Tensor, weights: Tensor) -> Tensor:
    scores, indices = lightning_indexer(q, k, weights)
    return torch.where(indices >= 0, scores, 0).square().sum()


def gradients(function: Callable[..., Tensor], inputs: Leaves) -> list[Tensor]:
    return list(torch.autograd.grad(function(*inputs), inputs))


def assert_same(found: list[Tensor], due: list[Tensor]) -> None:
    assert all(torch.equal(a, b) for a, b in zip(found, due, strict=True))


def test_compiles_to_full_graphs_that_any_length_shares() -> None:
    from torch._dynamo.testing import CompileCounterWithBackend

    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(loss, fullgraph=True, backend=counter, dynamic=True)
    for queries in (64, 65, 80, 12, 40, 100, 33, 28):
        assert_same(gradients(compiled, leaves(queries)), gradients(loss, leaves(queries)))
    assert counter.frame_count <= 3


def test_operators_pass_opcheck() -> None:
    q, k, weights = leaves(40)
    scores, indices = lightning_indexer(q, k, weights)
    torch.library.opcheck(_ops.select, (q, k, weights, RATIO, TOPK, None, 0))
    torch.library.opcheck(_ops.select, (q, k, weights, RATIO, TOPK, indices, 3))
    grad = torch.randn_like(scores)
    constants = (q.detach(), k.detach(), weights.detach(), indices, grad)
    torch.library.opcheck(_ops.gradients, (*constants, True, True, True))
    torch.library.opcheck(_ops.gradients, (*constants, False, True, False))


def test_exports_with_dynamic_length() -> None:
    class Indexer(torch.nn.Module):
        def forward(self, q: Tensor, k: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
            scores, indices = lightning_indexer(q, k, weights)
            return scores, indices

    windows = torch.export.Dim("windows", min=TOPK, max=1024)
    dynamic = ({0: RATIO * windows}, {0: windows}, {0: RATIO * windows})
    example = tuple(t.detach() for t in leaves(64))
    exported = torch.export.export(Indexer(), example, dynamic_shapes=dynamic).module()
    q, k, weights = (t.detach() for t in leaves(128))
    for found, due in zip(exported(q, k, weights), lightning_indexer(q, k, weights), strict=True):
        assert torch.equal(found, due)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpointing_selects_the_same_keys_again(use_reentrant: bool) -> None:
    from torch.utils.checkpoint import checkpoint

    def checkpointed(q: Tensor, k: Tensor, weights: Tensor) -> Tensor:
        result: Tensor = checkpoint(loss, q, k, weights, use_reentrant=use_reentrant)
        return result

    def backward(function: Callable[..., Tensor]) -> list[Tensor]:
        inputs = leaves(48)
        torch.autograd.backward(function(*inputs))
        return [t.grad for t in inputs if t.grad is not None]

    assert_same(backward(checkpointed), backward(loss))


def test_the_function_and_the_operator_agree_in_every_mode() -> None:
    inputs = leaves(44)
    by_function = V4IndexerFunction.apply(*inputs, RATIO, TOPK)
    by_operator = v4_lighting_indexer(*inputs, RATIO, TOPK)
    with torch.no_grad():
        without_grad = v4_lighting_indexer(*inputs, RATIO, TOPK)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        under_autocast = v4_lighting_indexer(*inputs, RATIO, TOPK)
    for other in (by_operator, without_grad, under_autocast):
        assert_same(list(other), list(by_function))


@pytest.mark.parametrize("through", [V4IndexerFunction.apply, v4_lighting_indexer])
def test_second_derivatives_and_edits_of_saved_tensors_raise(through: Callable[..., tuple[Tensor, Tensor]]) -> None:
    q, k, weights = leaves(44)
    scores, _ = through(q, k, weights, RATIO, TOPK)
    upstream = torch.ones_like(scores, requires_grad=True)
    (dq,) = torch.autograd.grad(scores, [q], upstream, create_graph=True)
    with pytest.raises(RuntimeError, match=r"differentiable once|once_differentiable"):
        torch.autograd.backward(dq.float().sum())

    scores, _ = through(q, k, weights, RATIO, TOPK)
    with torch.no_grad():
        k.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.backward(scores, torch.ones_like(scores))


def test_nothing_leaks() -> None:
    def live_tensors() -> int:
        gc.collect()
        return sum(isinstance(thing, Tensor) for thing in gc.get_objects())

    torch.autograd.backward(loss(*leaves(16)))
    before = live_tensors()
    for _ in range(1000):
        torch.autograd.backward(loss(*leaves(16)))
    assert live_tensors() <= before


def test_gradients_can_be_replayed_at_given_indices() -> None:
    q, k, weights = leaves(44)
    scores, indices = lightning_indexer(q, k, weights)
    replayed, same = lightning_indexer(q, k, weights, topk_indices=indices)
    assert torch.equal(indices, same)
    assert torch.equal(scores, replayed)
    grad = torch.randn_like(scores)
    assert_same(
        list(torch.autograd.grad(scores, [q, k, weights], grad)),
        list(torch.autograd.grad(replayed, [q, k, weights], grad)),
    )


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_void_columns_contribute_nothing_beside_a_query_that_is_not_finite(value: float) -> None:
    q, k, weights = (t.detach() for t in leaves(12))
    q[:] = value
    void = torch.tensor([-1, k.shape[0], -7]).expand(2, 12, 3).int()
    for gradient in batched_indexer_bwd(q, weights, k, void, torch.full(void.shape, torch.nan)):
        assert not gradient.any()
