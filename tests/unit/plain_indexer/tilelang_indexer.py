"""Autograd and entry points."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from . import mask
from .constants import DIM, DTYPE, HEADS, LAYOUT, TOPK
from .tilelang_indexer_bwd import batched_indexer_bwd
from .tilelang_indexer_fwd import batch_first, packed, score_matrix, visible_keys
from .tilelang_indexer_topk import select


def pytorch_extract_topk_scores(logits: Tensor, topk_indices: Tensor, dim: int = -1) -> Tensor:
    keys = logits.shape[dim]
    void = (topk_indices < 0) | (topk_indices >= keys)
    if keys == 0:
        return logits.new_full(topk_indices.shape, -torch.inf)
    return logits.gather(dim, torch.where(void, 0, topk_indices).long()).masked_fill(void, -torch.inf)


class _Indexer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        weights: Tensor,
        topk: int,
        starts: Tensor,
        ends: Tensor,
        base: Tensor,
        given: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        keys = batch_first(k)
        visible = visible_keys(starts, ends, keys.shape[1])
        matrix = score_matrix(batch_first(q), keys, batch_first(weights), visible)
        if given is None:
            scores, indices = select(matrix, starts, ends, topk)
        else:
            given = given if given.ndim == 3 else given[None]
            indices = torch.where(given < 0, given.long(), given + base[..., None])
            hidden = (indices < starts[..., None]) | (indices >= ends[..., None])
            indices = torch.where(hidden, -1, indices).to(torch.int32)
            scores = pytorch_extract_topk_scores(matrix, indices)
        ctx.save_for_backward(q, k, weights, indices)
        counted = torch.where(indices < 0, -1, indices - base[..., None]).to(indices.dtype)
        ctx.mark_non_differentiable(counted)
        return packed(scores), packed(counted)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        q, k, weights, indices = ctx.saved_tensors
        dq, dw, dk = batched_indexer_bwd(q, weights, k, packed(indices), grad)
        found = (dq, dk.to(k.dtype), dw.to(weights.dtype))
        asked = (t if wanted else None for t, wanted in zip(found, ctx.needs_input_grad, strict=False))
        return (*asked, None, None, None, None, None)


# torch's own annotation is missing
apply: Callable[..., tuple[Tensor, Tensor]] = _Indexer.apply


class V4IndexerFunction:
    @staticmethod
    def apply(
        index_q: Tensor,
        index_k: Tensor,
        weights: Tensor,
        compress_ratio: int,
        topk: int,
        topk_indices: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        for name, number in (("compress_ratio", compress_ratio), ("topk", topk)):
            mask.check_integer(name, number, 1)
        _check("index_q", index_q, "index_k", index_k, weights, topk_indices)
        queries, keys = batch_first(index_q).shape[1], batch_first(index_k).shape[1]
        starts, ends = mask.causal(queries, keys, compress_ratio, 0, index_q.device)
        return apply(index_q, index_k, weights, topk, starts, ends, torch.zeros_like(starts), topk_indices)


def v4_lighting_indexer(
    index_q: Tensor,
    index_k: Tensor,
    weights: Tensor,
    compress_ratio: int,
    topk: int,
    topk_indices: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    return V4IndexerFunction.apply(index_q, index_k, weights, compress_ratio, topk, topk_indices)


def _ranges(q: Tensor, k: Tensor, offset: int, told: dict[str, Any]) -> Any:
    batch, queries = batch_first(q).shape[:2]
    return mask.ranges(batch, queries, batch_first(k).shape[1], offset, told, q.device)


def lightning_indexer(
    q: Tensor, k: Tensor, weights: Tensor, *, topk_indices: Tensor | None = None, query_offset: int = 0, **told: Any
) -> tuple[Tensor, Tensor]:
    _check("q", q, "k", k, weights, topk_indices)
    return apply(q, k, weights, TOPK, *_ranges(q, k, query_offset, told), topk_indices)


class LightningIndexer:
    def __init__(self, query_offset: int = 0) -> None:
        self.query_offset = query_offset

    def scores(self, q: Tensor, k: Tensor, weights: Tensor, **told: Any) -> Tensor:
        _check("q", q, "k", k, weights, None)
        starts, ends, _ = _ranges(q, k, self.query_offset, told)
        visible = visible_keys(starts, ends, batch_first(k).shape[1])
        return packed(score_matrix(batch_first(q), batch_first(k), batch_first(weights), visible))

    def select(self, scores: Tensor, **told: Any) -> tuple[Tensor, Tensor]:
        matrix = scores if scores.ndim == 3 else scores[None]
        batch, queries, keys = matrix.shape
        starts, ends, base = mask.ranges(batch, queries, keys, self.query_offset, told, scores.device)
        values, indices = select(matrix, starts, ends, TOPK)
        counted = torch.where(indices < 0, -1, indices - base[..., None]).to(indices.dtype)
        return packed(values), packed(counted)

    def __call__(
        self, q: Tensor, k: Tensor, weights: Tensor, *, topk_indices: Tensor | None = None, **told: Any
    ) -> tuple[Tensor, Tensor]:
        return lightning_indexer(q, k, weights, topk_indices=topk_indices, query_offset=self.query_offset, **told)


def _check(q_name: str, q: Any, k_name: str, k: Any, weights: Any, given: Any) -> None:
    dtype = getattr(torch, DTYPE)
    short = LAYOUT == "THD"
    for name, tensor, rank, dtypes in (
        (q_name, q, 4 - short, (dtype,)),
        (k_name, k, 3 - short, (dtype,)),
        ("weights", weights, 3 - short, (torch.float32, dtype)),
        ("topk_indices", given, 3 - short, (torch.int32,)),
    ):
        if tensor is None:
            continue
        if not isinstance(tensor, Tensor) or tensor.dtype not in dtypes:
            raise TypeError(f"`{name}` must be a tensor of {dtypes}")
        if tensor.ndim != rank or tensor.device != q.device:
            raise ValueError(f"`{name}` must have rank {rank} and be on {q.device}")
    batch, queries = batch_first(q).shape[:2]
    rows = (queries,) if short else (batch, queries)
    for name, found, expected in (
        (q_name, q.shape[-2:], (HEADS, DIM)),
        (k_name, (batch_first(k).shape[0], k.shape[-1]), (batch, DIM)),
        ("weights", weights.shape, q.shape[:-1]),
        ("topk_indices", rows if given is None else given.shape[:-1], rows),
    ):
        if tuple(found) != tuple(expected):
            raise ValueError(f"`{name}` is {tuple(found)}, expected {tuple(expected)}")
