"""Autograd and entry points."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .constants import DIM, DTYPE, HEADS, RATIO, TOPK
from .tilelang_indexer_bwd import batched_indexer_bwd
from .tilelang_indexer_fwd import batch_first, score_matrix
from .tilelang_indexer_topk import select


def _ends(queries: int, keys: int, ratio: int, offset: int, device: torch.device) -> Tensor:
    return ((offset + torch.arange(queries, device=device) + 1) // ratio).clamp(max=keys)


def _matrix(q: Tensor, k: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
    keys = batch_first(k)
    visible = torch.arange(keys.shape[1], device=q.device) < ends[:, None]
    return score_matrix(batch_first(q), keys, batch_first(weights), visible)


def pytorch_extract_topk_scores(logits: Tensor, topk_indices: Tensor, dim: int = -1) -> Tensor:
    keys = logits.shape[dim]
    void = (topk_indices < 0) | (topk_indices >= keys)
    if keys == 0:
        return logits.new_full(topk_indices.shape, -torch.inf)
    return logits.gather(dim, torch.where(void, 0, topk_indices).long()).masked_fill(void, -torch.inf)


class _Indexer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, weights: Tensor, ratio: int, topk: int, offset: int, given: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        ends = _ends(batch_first(q).shape[1], batch_first(k).shape[1], ratio, offset, q.device)
        matrix = _matrix(q, k, weights, ends)
        if given is None:
            scores, indices = select(matrix, ends, topk)
        else:
            indices = torch.where(given >= ends[:, None], -1, given)
            scores = pytorch_extract_topk_scores(matrix, indices)
        ctx.save_for_backward(q, k, weights, indices)
        ctx.mark_non_differentiable(indices)
        return scores, indices

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        q, k, weights, indices = ctx.saved_tensors
        dq, dw, dk = batched_indexer_bwd(q, weights, k, indices, grad)
        found = (dq, dk.to(k.dtype), dw.to(weights.dtype))
        asked = (t if wanted else None for t, wanted in zip(found, ctx.needs_input_grad, strict=False))
        return (*asked, None, None, None, None)


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
        _check("index_q", index_q, "index_k", index_k, weights, topk_indices)
        return apply(index_q, index_k, weights, compress_ratio, topk, 0, topk_indices)


def v4_lighting_indexer(
    index_q: Tensor,
    index_k: Tensor,
    weights: Tensor,
    compress_ratio: int,
    topk: int,
    topk_indices: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    return V4IndexerFunction.apply(index_q, index_k, weights, compress_ratio, topk, topk_indices)


def lightning_indexer(
    q: Tensor, k: Tensor, weights: Tensor, *, topk_indices: Tensor | None = None, query_offset: int = 0
) -> tuple[Tensor, Tensor]:
    _check("q", q, "k", k, weights, topk_indices)
    return apply(q, k, weights, RATIO, TOPK, query_offset, topk_indices)


class LightningIndexer:
    def __init__(self, query_offset: int = 0) -> None:
        self.query_offset = query_offset

    def scores(self, q: Tensor, k: Tensor, weights: Tensor) -> Tensor:
        _check("q", q, "k", k, weights, None)
        queries, keys = batch_first(q).shape[1], batch_first(k).shape[1]
        return _matrix(q, k, weights, _ends(queries, keys, RATIO, self.query_offset, q.device))

    def select(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        ends = _ends(scores.shape[1], scores.shape[2], RATIO, self.query_offset, scores.device)
        return select(scores, ends, TOPK)

    def __call__(self, q: Tensor, k: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        return lightning_indexer(q, k, weights, query_offset=self.query_offset)


def _check(q_name: str, q: Any, k_name: str, k: Any, weights: Any, given: Any) -> None:
    dtype = getattr(torch, DTYPE)
    for name, tensor, rank, dtypes in (
        (q_name, q, 4, (dtype,)),
        (k_name, k, 3, (dtype,)),
        ("weights", weights, 3, (torch.float32, dtype)),
        ("topk_indices", given, 3, (torch.int32,)),
    ):
        if tensor is None:
            continue
        if not isinstance(tensor, Tensor) or tensor.dtype not in dtypes:
            raise TypeError(f"`{name}` must be a tensor of {dtypes}")
        if tensor.ndim != rank or tensor.device != q.device:
            raise ValueError(f"`{name}` must have rank {rank} and be on {q.device}")
    batch, queries = batch_first(q).shape[:2]
    for name, found, expected in (
        (q_name, q.shape[2:], (HEADS, DIM)),
        (k_name, (batch_first(k).shape[0], k.shape[2]), (batch, DIM)),
        ("weights", weights.shape, q.shape[:3]),
        ("topk_indices", (batch, queries) if given is None else given.shape[:2], (batch, queries)),
    ):
        if tuple(found) != tuple(expected):
            raise ValueError(f"`{name}` is {tuple(found)}, expected {tuple(expected)}")
