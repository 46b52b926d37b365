"""Gradients at given indices."""

import torch
from torch import Tensor

from .constants import SCALE
from .tilelang_indexer_fwd import batch_first, in_layout


def gradients(q: Tensor, weights: Tensor, k: Tensor, indices: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Batch first; dq, dw, dk in float32, summed in float64."""
    dq = torch.zeros(q.shape, dtype=torch.float64, device=q.device)
    dw = torch.zeros(weights.shape, dtype=torch.float64, device=q.device)
    dk = torch.zeros(k.shape, dtype=torch.float64, device=q.device)
    if k.shape[1] == 0:
        return dq.float(), dw.float(), dk.float()
    valid = (indices >= 0) & (indices < k.shape[1])
    kept = torch.where(valid, indices, 0).long()
    upstream = torch.where(valid, grad, 0.0)
    for sample in range(q.shape[0]):
        keys = k[sample].double()[kept[sample]]
        keys = torch.where(valid[sample][..., None], keys, 0.0)
        queries = q[sample].double()
        dots = queries @ keys.transpose(1, 2)
        scaled = weights[sample].double() * SCALE
        gate = dots > 0
        passed = torch.where(gate, scaled[..., None] * upstream[sample][:, None], 0.0)
        dq[sample] = passed @ keys
        dw[sample] = (upstream[sample][:, None] * dots.clamp(min=0)).sum(-1) * SCALE
        by_column = passed.transpose(1, 2) @ queries
        dk[sample].index_add_(0, kept[sample].flatten(), by_column.flatten(0, 1))
    return dq.float(), dw.float(), dk.float()


def batched_indexer_bwd(
    index_q: Tensor, weights: Tensor, index_k: Tensor, topk_indices: Tensor, grad_scores: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    if topk_indices.ndim == 2:
        topk_indices, grad_scores = topk_indices[None], grad_scores[None]
    found = gradients(batch_first(index_q), batch_first(weights), batch_first(index_k), topk_indices, grad_scores)
    dq, dw, dk = (in_layout(t) for t in found)
    return dq.to(index_q.dtype), dw, dk


def indexer_bwd_interface(
    index_q: Tensor, weights: Tensor, index_k: Tensor, topk_indices: Tensor, grad_scores: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    dq, dw, dk = gradients(index_q[None], weights[None], index_k[None], topk_indices[None], grad_scores[None])
    return dq[0].to(index_q.dtype), dw[0], dk[0]
