"""Packages with the golden tables' sizes give the golden numbers, all integers, through their public functions."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from v4gen.read.spec import Spec
from v4gen.run.golden import G1, G2, Golden, golden_gradient, golden_inputs
from v4gen.run.package import Package

VARIANTS: dict[str, dict[str, object]] = {
    "seed": {"interface": "seed", "layout": "SBHD", "width": "min"},
    "operator": {"layout": "BSHD", "width": "topk", "order": "index", "dtype": "float16"},
    "ranges": {"layout": "BSHD", "mask": "ranges"},
    "documents": {"layout": "THD", "mask": "varlen", "index_base": "local"},  # a document for each sample
}


@dataclass(frozen=True)
class Answer:
    """What a package says about a table: scores and indices batch first, gradients in its layout."""

    table: Golden
    variant: str
    matrix: Tensor
    scores: Tensor
    indices: Tensor
    gradients: tuple[Tensor, ...]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(
            (table, variant), id=f"{table.name} {variant}", marks=pytest.mark.xdist_group(table.name + variant)
        )
        for table, variant in (
            (G1, "seed"),
            (G2, "seed"),
            (G2, "operator"),
            (G2, "ranges"),
            (G1, "documents"),
            (G2, "documents"),
        )
    ],
)
def answer(request: pytest.FixtureRequest, load: Callable[[Spec], Package]) -> Answer:
    table, variant = request.param
    sizes = {"heads": table.heads, "dim": table.dim, "topk": table.topk, "compress_ratio": table.ratio}
    spec = Spec.model_validate({"schema": "v4gen/1", "name": "golden", **sizes, **VARIANTS[variant]})
    package = load(spec)
    half = getattr(torch, spec.dtype)
    q, k, w = (
        in_layout(values, spec.layout).to(dtype).contiguous().requires_grad_()
        for values, dtype in zip(drawn(table), (half, half, torch.float32), strict=True)
    )
    mask = told_mask(table, spec)
    if variant == "seed":
        scores, indices = package.indexer.v4_lighting_indexer(q, k, w, table.ratio, table.topk)
    else:
        scores, indices = package.indexer.lightning_indexer(q, k, w, **mask)
    indices = indices.view(table.batch, table.queries, -1)
    by_key = torch.tensor([[golden_gradient(t, s) for s in range(table.keys)] for t in range(table.queries)])
    grad = by_key.expand(table.batch, -1, -1).gather(-1, indices.long().clamp(min=0)).float()
    grad = grad.masked_fill(indices < 0, torch.nan)
    gradients = torch.autograd.grad(scores, (q, k, w), grad.view(scores.shape))
    matrix = package.indexer.LightningIndexer().scores(q, k, w, **mask)
    return Answer(table, variant, own_keys(matrix, table), scores.detach().view(indices.shape), indices, gradients)


def drawn(table: Golden) -> Iterator[Tensor]:
    """q, k and weights, batch first."""
    shapes = ((table.queries, table.heads, table.dim), (table.keys, table.dim), (table.queries, table.heads))
    for values, shape in zip(golden_inputs(table), shapes, strict=True):
        yield torch.tensor(values).view(table.batch, *shape)


def in_layout(values: Tensor, layout: str) -> Tensor:
    return values.flatten(0, 1) if layout == "THD" else values.transpose(0, 1) if layout == "SBHD" else values


def told_mask(table: Golden, spec: Spec) -> dict[str, Tensor]:
    """What tells the spec's mask to see what causal would."""
    if spec.mask == "varlen":
        documents = torch.arange(table.batch + 1, dtype=torch.int32)
        return {"cu_seqlens_q": documents * table.queries, "cu_seqlens_k": documents * table.keys}
    if spec.mask == "ranges":
        ends = (torch.arange(table.queries, dtype=torch.int32) + 1) // table.ratio
        return {"cu_seqlen_ks": torch.zeros_like(ends), "cu_seqlen_ke": ends}
    return {}


def own_keys(matrix: Tensor, table: Golden) -> Tensor:
    """The score matrix [B,S,N]; of packed tokens, what each document has with its own keys."""
    if matrix.ndim == 3:
        return matrix
    blocks = matrix.view(table.batch, table.queries, table.batch, table.keys).unbind(0)
    others = [block.roll(-sample, 1)[:, 1:] for sample, block in enumerate(blocks)]
    assert all(bool((other == -torch.inf).all()) for other in others)
    return torch.stack([block[:, sample] for sample, block in enumerate(blocks)])


def total(values: Tensor) -> float:
    return values.double().sum().item()


def test_scores(answer: Answer) -> None:
    table = answer.table
    ends = (torch.arange(table.queries) + 1) // table.ratio
    visible = (torch.arange(table.keys) < ends[:, None]).expand(answer.matrix.shape)
    assert visible.sum() == table.visible_pairs
    assert (answer.matrix[~visible] == -torch.inf).all()
    seen = answer.matrix[visible].double()
    assert (total(seen), total(seen**2)) == (table.sum_scores, table.sum_squared_scores)


def test_selection(answer: Answer) -> None:
    table, chosen = answer.table, answer.indices >= 0
    assert answer.indices.dtype == torch.int32 and answer.scores.dtype == torch.float32
    assert chosen.sum() == table.selected
    assert total(answer.scores[chosen]) == table.sum_selected
    assert total(answer.indices[chosen]) == table.sum_indices
    assert (answer.scores[~chosen] == -torch.inf).all() and (answer.indices[~chosen] == -1).all()


def test_the_last_row(answer: Answer) -> None:
    table = answer.table
    expected = list(zip(table.last_indices, table.last_scores, strict=True))
    found = list(zip(answer.indices[-1, -1].tolist(), answer.scores[-1, -1].tolist(), strict=True))
    assert found == (sorted(expected) if answer.variant == "operator" else expected)


@pytest.mark.parametrize(("position", "name"), [(0, "dq"), (1, "dk"), (2, "dw")])
def test_gradients(answer: Answer, position: int, name: str) -> None:
    gradient = answer.gradients[position]
    assert total(gradient) == getattr(answer.table, f"sum_{name}")
    assert total(gradient.abs()) == getattr(answer.table, f"sum_abs_{name}")


def test_no_zero_is_negative(answer: Answer) -> None:
    for scores in (answer.matrix, answer.scores):
        zeros = scores == 0
        assert zeros.any()
        assert not (zeros & scores.signbit()).any()
