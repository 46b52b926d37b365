"""Gradients at given indices."""

import torch
from torch import Tensor

from .constants import SCALE, SEQUENCE_FIRST
from .tilelang_indexer_fwd import batch_first


def gradients(q: Tensor, weights: Tensor, k: Tensor, indices: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Batch first; dq, dw, dk in float32."""
    dq = torch.zeros(q.shape, device=q.device)
    dw = torch.zeros(weights.shape, device=q.device)
    dk = torch.zeros(k.shape, device=q.device)
    if k.shape[1] == 0:
        return dq, dw, dk
    valid = (indices >= 0) & (indices < k.shape[1])
    kept = torch.where(valid, indices, 0).long()
    upstream = torch.where(valid, grad, 0.0)
    for sample in range(q.shape[0]):
        keys = k[sample].float()[kept[sample]]
        keys = torch.where(valid[sample][..., None], keys, 0.0)
        queries = q[sample].float()
        dots = queries @ keys.transpose(1, 2)
        scaled = weights[sample].float() * SCALE
        gate = dots > 0
        passed = torch.where(gate, scaled[..., None] * upstream[sample][:, None], 0.0)
        dq[sample] = passed @ keys
        dw[sample] = (upstream[sample][:, None] * dots.clamp(min=0)).sum(-1) * SCALE
        by_column = passed.transpose(1, 2) @ queries
        dk[sample].index_add_(0, kept[sample].flatten(), by_column.flatten(0, 1))
    return dq, dw, dk


def batched_indexer_bwd(
    index_q: Tensor, weights: Tensor, index_k: Tensor, topk_indices: Tensor, grad_scores: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    found = gradients(batch_first(index_q), batch_first(weights), batch_first(index_k), topk_indices, grad_scores)
    dq, dw, dk = (batch_first(t) for t in found)
    return dq.to(index_q.dtype), dw, dk


def indexer_bwd_interface(
    index_q: Tensor, weights: Tensor, index_k: Tensor, topk_indices: Tensor, grad_scores: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    axis = 1 if SEQUENCE_FIRST else 0
    q, w, k = (t.unsqueeze(axis) for t in (index_q, weights, index_k))
    dq, dw, dk = batched_indexer_bwd(q, w, k, topk_indices[None], grad_scores[None])
    return dq.squeeze(axis), dw.squeeze(axis), dk.squeeze(axis)
