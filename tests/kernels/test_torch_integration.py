"""The emitted operator inside torch: compile, export, checkpointing, autocast, saved tensors, leaks. On CPU tensors."""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import pytest
import torch
from torch import Tensor

from v4gen.generated.tiny import LightningIndexer, _ops, lightning_indexer
from v4gen.generated.tiny.tilelang_indexer import V4IndexerFunction, v4_lighting_indexer
from v4gen.generated.tiny.tilelang_indexer_bwd import batched_indexer_bwd
from v4gen.read.spec import Spec
from v4gen.run.package import Package

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


def graphs_of(function: Callable[..., Tensor], dynamic: bool | None, lengths: Sequence[int]) -> int:
    """How many graphs torch.compile makes of `function` and its backward, whose results must be the eager ones."""
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(function, fullgraph=True, backend=counter, dynamic=dynamic)
    for queries in lengths:
        assert_same(gradients(compiled, leaves(queries)), gradients(function, leaves(queries)))
    return counter.frame_count


@pytest.mark.parametrize(("dynamic", "graphs"), [(True, 1), (None, 2)])  # None: static sizes in the first
def test_any_length_shares_a_graph(dynamic: bool | None, graphs: int, load: Callable[[Spec], Package]) -> None:
    lengths = (64, 44, 65, 80, 12, 40, 100, 33, 28, 31, 32, 8)
    # Of width min(topk, N) two formulas, on either side of N = topk.
    assert graphs_of(loss, dynamic, lengths) <= graphs + 1
    sizes = {"heads": HEADS, "dim": DIM, "topk": TOPK, "compress_ratio": RATIO}
    spec = Spec.model_validate({"schema": "v4gen/1", "name": "wide", "layout": "SBHD", "width": "topk", **sizes})
    indexer = load(spec).indexer.lightning_indexer

    def wide_loss(*inputs: Tensor) -> Tensor:
        scores, indices = indexer(*inputs)
        return torch.where(indices >= 0, scores, 0).square().sum()

    assert graphs_of(wide_loss, dynamic, lengths) <= graphs
    # A size of 0 or 1 is a constant to torch, whatever the operator: no key, one key, one query have a graph each.
    assert graphs_of(wide_loss, dynamic, (*lengths, 7, 4, 3, 2, 1, 5, 70)) <= graphs + 3


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
    for gradient in torch.autograd.grad(scores, [q, k, weights], upstream, create_graph=True):
        with pytest.raises(RuntimeError, match=r"differentiable once|once_differentiable"):
            torch.autograd.backward(gradient.float().sum(), retain_graph=True)

    for saved in range(4):
        inputs = leaves(44)
        scores, indices = through(*inputs, RATIO, TOPK)
        with torch.no_grad():
            (*inputs, indices)[saved].add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            torch.autograd.backward(scores, torch.ones_like(scores))


def test_scores_may_be_edited_in_place() -> None:
    def edited(*inputs: Tensor) -> Tensor:
        scores, indices = lightning_indexer(*inputs)
        scores.masked_fill_(indices < 0, 0).square_()
        total: Tensor = scores.sum()
        return total

    assert_same(gradients(edited, leaves(44)), gradients(loss, leaves(44)))


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


@contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


MODES: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "autocast to bfloat16": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "autocast to float16": lambda: torch.autocast("cpu", dtype=torch.float16),
    "deterministic algorithms": deterministic,
}


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_no_mode_of_torch_changes_a_bit(mode: Callable[[], AbstractContextManager[object]], compiled: bool) -> None:
    function = torch.compile(loss, fullgraph=True, backend="aot_eager") if compiled else loss
    due = gradients(loss, leaves(44))
    with mode():
        assert_same(gradients(function, leaves(44)), due)


def test_weights_may_be_bfloat16() -> None:
    q, k, weights = leaves(44)
    half = weights.detach().bfloat16().requires_grad_()
    widened = half.detach().float().requires_grad_()
    assert_same(list(lightning_indexer(q, k, half)), list(lightning_indexer(q, k, widened)))
    dq, dk, dw = gradients(loss, (q, k, half))
    due = gradients(loss, (q, k, widened))
    assert_same([dq, dk, dw], [*due[:2], due[2].bfloat16()])


def sliced(tensor: Tensor, before: int, after: int) -> Tensor:
    """`tensor` as a slice of a wider projection."""
    wide = torch.full((*tensor.shape[:-1], before + tensor.shape[-1] + after), 99, dtype=tensor.dtype)
    view = wide[..., before : before + tensor.shape[-1]]
    return view.copy_(tensor)


def permuted(tensor: Tensor) -> Tensor:
    """`tensor` with the strides of its dimensions in reverse."""
    reverse = tuple(reversed(range(tensor.ndim)))
    return tensor.permute(reverse).contiguous().permute(reverse)


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "aligned slice": lambda tensor: sliced(tensor, 16, 16),
    "slice off alignment": lambda tensor: sliced(tensor, 3, 2),
    "one element past alignment": lambda tensor: torch.cat([tensor[:1].flatten()[:1], tensor.flatten()])[1:].view_as(
        tensor
    ),
    "permuted": permuted,
    "every second": lambda tensor: tensor.repeat_interleave(2, 0)[::2],
    "expanded over queries or keys": lambda tensor: tensor[:1].expand_as(tensor),
    "expanded over the batch": lambda tensor: tensor[:, :1].expand_as(tensor),
    "an expanded scalar": lambda tensor: tensor.flatten()[0].expand_as(tensor),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_views_give_the_bits_of_contiguous_copies(view: Callable[[Tensor], Tensor]) -> None:
    """Inputs, given indices and gradients alike."""
    q, k, weights = (t.detach() for t in leaves(44))
    generator = torch.Generator().manual_seed(0)
    indices = torch.randint(-1, k.shape[0] + 1, (2, 44, TOPK), generator=generator, dtype=torch.int32)
    views = [view(t) for t in (q, k, weights, indices, torch.randn(2, 44, TOPK, generator=generator))]

    def results(tensors: list[Tensor]) -> list[Tensor]:
        inputs = [t.detach().requires_grad_() for t in tensors[:3]]
        given, grad = tensors[3:]
        scores, selected = lightning_indexer(*inputs)
        replayed, visible = lightning_indexer(*inputs, topk_indices=given)
        gradients = [torch.autograd.grad(found, inputs, grad) for found in (scores, replayed)]
        return [scores, selected, replayed, visible, LightningIndexer().scores(*inputs), *gradients[0], *gradients[1]]

    assert_same(results(views), results([t.clone(memory_format=torch.contiguous_format) for t in views]))
