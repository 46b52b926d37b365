"""Scores."""

import torch
from torch import Tensor

from .constants import SCALE, SEQUENCE_FIRST


def batch_first(tensor: Tensor) -> Tensor:
    return tensor.transpose(0, 1) if SEQUENCE_FIRST else tensor


def _make_causal_cu_seqlens(
    seq_len_q: int, seq_len_kv: int, compress_ratio: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    ends = (torch.arange(seq_len_q, device=device) + 1) // compress_ratio
    ends = ends.clamp(max=seq_len_kv).to(torch.int32)
    return torch.zeros_like(ends), ends


def score_matrix(q: Tensor, k: Tensor, weights: Tensor, visible: Tensor) -> Tensor:
    """[B,S,H,D], [B,N,D], [B,S,H], [S,N] -> [B,S,N]."""
    batch, queries = q.shape[:2]
    result = torch.empty((batch, queries, k.shape[1]), dtype=torch.float32, device=q.device)
    for sample in range(batch):
        keys = k[sample].float()
        dots = q[sample].float() @ keys.T
        q_k = dots.clamp(min=0)
        scaled = weights[sample].float() * SCALE
        scores = torch.einsum("sh,shn->sn", scaled, q_k)
        result[sample] = scores
    result = torch.where(result == 0, 0.0, result)
    return result.masked_fill(~visible, -torch.inf)


def batched_indexer_fwd(q: Tensor, k: Tensor, weights: Tensor, cu_seqlen_ks: Tensor, cu_seqlen_ke: Tensor) -> Tensor:
    keys = torch.arange(batch_first(k).shape[1], device=q.device)
    visible = (keys >= cu_seqlen_ks[:, None]) & (keys < cu_seqlen_ke[:, None])
    return score_matrix(batch_first(q), batch_first(k), batch_first(weights), visible)


def indexer_fwd_interface(
    q: Tensor, kv: Tensor, weights: Tensor, cu_seqlen_ks: Tensor, cu_seqlen_ke: Tensor, clean_logits: bool = True
) -> Tensor:
    keys = torch.arange(kv.shape[0], device=q.device)
    visible = (keys >= cu_seqlen_ks[:, None]) & (keys < cu_seqlen_ke[:, None]) | (not clean_logits)
    return score_matrix(q[None], kv[None], weights[None], visible)[0]
