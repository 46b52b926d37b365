"""Which keys each query may see."""

from typing import Any

import torch
from torch import Tensor

from .constants import LAYOUT, LOCAL, MASK, RATIO

NAMES = {
    "causal": (),
    "ranges": ("cu_seqlen_ks", "cu_seqlen_ke", "max_seqlen_k"),
    "varlen": ("cu_seqlens_q", "cu_seqlens_k", "max_seqlen_k"),
}[MASK]


def ranges(batch: int, queries: int, keys: int, offset: int, told: dict[str, Any], device: torch.device) -> Any:
    """Starts, ends and what indices count from, each [M,S]."""
    check(batch, queries, offset, told, device)
    longest = told.get("max_seqlen_k")
    if MASK == "causal":
        starts, ends = causal(queries, keys, RATIO, offset, device)
    elif MASK == "ranges":
        starts, ends = (told[name].long().clamp(0, keys) for name in NAMES[:2])
        starts, ends = (bound if bound.ndim == 2 else bound[None] for bound in (starts, ends))
    else:
        starts, ends = documents(told["cu_seqlens_q"].long(), told["cu_seqlens_k"].long(), queries)
    ends = ends.maximum(starts)
    if longest is not None:
        ends = ends.minimum(starts + longest)
    return starts, ends, starts if LOCAL else torch.zeros_like(starts)


def causal(queries: int, keys: int, ratio: int, offset: int, device: torch.device) -> tuple[Tensor, Tensor]:
    ends = ((offset + torch.arange(queries, device=device) + 1) // ratio).clamp(max=keys)[None]
    return torch.zeros_like(ends), ends


def documents(tokens: Tensor, keys: Tensor, queries: int) -> tuple[Tensor, Tensor]:
    at = torch.arange(queries, device=tokens.device)
    of = torch.searchsorted(tokens, at, right=True) - 1
    inside = (of >= 0) & (of < len(tokens) - 1)
    of = of.clamp(0, len(tokens) - 2)
    seen = inside * ((at - tokens[of] + 1) // RATIO).minimum(keys[of + 1] - keys[of])
    return keys[of][None], (keys[of] + seen)[None]


def check_integer(name: str, value: object, low: int) -> None:
    if not isinstance(value, int) or not low <= value < 2**31:
        raise ValueError(f"`{name}` is {value}")


def check(batch: int, queries: int, offset: int, told: dict[str, Any], device: torch.device) -> None:
    for name, value in (*told.items(), ("query_offset", offset or None)):
        if value is not None and name not in NAMES and not (name == "query_offset" and MASK == "causal"):
            raise ValueError(f"`{name}` is no argument of mask {MASK}")
    check_integer("query_offset", offset, 0)
    check_integer("query_offset", offset + queries, 0)
    if told.get("max_seqlen_k") is not None:
        check_integer("max_seqlen_k", told["max_seqlen_k"], 0)
    shapes = [(queries,)] if LAYOUT == "THD" else [(queries,), (batch, queries)]
    for name in NAMES[:2]:
        value = told.get(name)
        if not isinstance(value, Tensor) or value.dtype != torch.int32 or value.device != device:
            raise TypeError(f"`{name}` must be an int32 tensor on {device}")
        if MASK == "ranges" and tuple(value.shape) not in shapes:
            raise ValueError(f"`{name}` is {tuple(value.shape)}, expected one of {shapes}")
        if MASK == "varlen" and (value.ndim != 1 or value.shape != told["cu_seqlens_q"].shape):
            raise ValueError(f"`{name}` is {tuple(value.shape)}, expected [documents + 1]")
