"""Scores."""

import torch
from torch import Tensor

from .constants import LAYOUT, SCALE


def batch_first(tensor: Tensor) -> Tensor:
    if LAYOUT == "THD":
        return tensor[None]
    return tensor.transpose(0, 1) if LAYOUT == "SBHD" else tensor


def in_layout(tensor: Tensor) -> Tensor:
    return tensor[0] if LAYOUT == "THD" else batch_first(tensor)


def packed(result: Tensor) -> Tensor:
    return result[0] if LAYOUT == "THD" else result


def _make_causal_cu_seqlens(
    seq_len_q: int, seq_len_kv: int, compress_ratio: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    ends = (torch.arange(seq_len_q, device=device) + 1) // compress_ratio
    ends = ends.clamp(max=seq_len_kv).to(torch.int32)
    return torch.zeros_like(ends), ends


def score_matrix(q: Tensor, k: Tensor, weights: Tensor, visible: Tensor) -> Tensor:
    """[B,S,H,D], [B,N,D], [B,S,H], [S,N] or [B,S,N] -> [B,S,N].

    In float64, so that a query's scores do not depend on how many others there are; BLAS sums in an order of its own.
    """
    batch, queries = q.shape[:2]
    result = torch.empty((batch, queries, k.shape[1]), dtype=torch.float32, device=q.device)
    for sample in range(batch):
        keys = k[sample].double()
        dots = q[sample].double() @ keys.T
        q_k = dots.clamp(min=0)
        scaled = weights[sample].double() * SCALE
        scores = torch.einsum("sh,shn->sn", scaled, q_k)
        result[sample] = scores
    result = torch.where(result == 0, 0.0, result)
    return result.masked_fill(~visible, -torch.inf)


def visible_keys(starts: Tensor, ends: Tensor, keys: int) -> Tensor:
    key = torch.arange(keys, device=starts.device)
    return (key >= starts[..., None]) & (key < ends[..., None])


def batched_indexer_fwd(q: Tensor, k: Tensor, weights: Tensor, cu_seqlen_ks: Tensor, cu_seqlen_ke: Tensor) -> Tensor:
    visible = visible_keys(cu_seqlen_ks, cu_seqlen_ke, batch_first(k).shape[1])
    return packed(score_matrix(batch_first(q), batch_first(k), batch_first(weights), visible))


def indexer_fwd_interface(
    q: Tensor, kv: Tensor, weights: Tensor, cu_seqlen_ks: Tensor, cu_seqlen_ke: Tensor, clean_logits: bool = True
) -> Tensor:
    visible = visible_keys(cu_seqlen_ks, cu_seqlen_ke, kv.shape[0]) | (not clean_logits)
    return score_matrix(q[None], kv[None], weights[None], visible)[0]
