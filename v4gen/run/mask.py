"""Which keys each query may see, as the oracle knows it and as a package is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import pad

from v4gen.run.case import Case, Document

if TYPE_CHECKING:
    from v4gen.read.spec import Spec

LARGEST = 2**31 - 1


@dataclass(frozen=True)
class Mask:
    """The half-open range of keys of each query, `starts` and `ends` int64 [M,S] within [0,N], M being 1 or B.

    Indices count from `base` int64 [M,S]. `arguments` are what an entry point takes beside `query_offset`; tensors
    are int32, on the CPU.
    """

    starts: Tensor
    ends: Tensor
    base: Tensor
    arguments: Mapping[str, Tensor | int]

    def visible(self, keys: int) -> Tensor:
        """Which of the keys each query may see: bool [M,S,N]."""
        return between(self.starts, self.ends, keys)

    def to_keys(self, indices: Tensor) -> Tensor:
        """Indices [B,S,C] of a package, on the CPU, as positions among all keys: int64, below zero as it was."""
        return torch.where(indices < 0, indices, indices + self.base[..., None])

    def to_indices(self, keys: Tensor) -> Tensor:
        """The inverse of `to_keys`, in int32."""
        return torch.where(keys < 0, keys, keys - self.base[..., None]).to(torch.int32)


def make_mask(case: Case, spec: Spec, generator: torch.Generator) -> Mask:
    """The mask of `case`, in the spec's way of telling it."""
    if spec.mask == "causal":
        starts, ends = causal(case.queries, case.keys, case.ratio, case.query_offset)
        return Mask(starts, ends, torch.zeros_like(starts), {})
    if spec.mask == "ranges":
        told = _draw_ranges(case, generator)
        starts, ends = (bound.long().clamp(0, case.keys) for bound in told)
        arguments = {"cu_seqlen_ks": told[0], "cu_seqlen_ke": told[1]}
        if not case.per_sample:
            arguments = {name: bound[0] for name, bound in arguments.items()}
    else:
        before, behind = case.around
        starts, ends = of_documents(case.documents, case.ratio)
        # whatever is in no document sees nothing
        starts, ends = (pad(bound + before.keys, (before.tokens, behind.tokens)) for bound in (starts, ends))
        arguments = {
            "cu_seqlens_q": _cumulative(before.tokens, [document.tokens for document in case.documents]),
            "cu_seqlens_k": _cumulative(before.keys, [document.keys for document in case.documents]),
        }
    base = starts if spec.index_base == "local" else torch.zeros_like(starts)
    ends = ends.maximum(starts)
    longest = _promised(case, int((ends - starts).max()) if ends.numel() else 0)
    if longest is None:
        return Mask(starts, ends, base, arguments)
    return Mask(starts, ends.minimum(starts + longest), base, {**arguments, "max_seqlen_k": longest})


def between(starts: Tensor, ends: Tensor, keys: int) -> Tensor:
    """Which of the keys lie in each half-open range: bool [M,S,N]."""
    key = torch.arange(keys)
    return (key >= starts[..., None]) & (key < ends[..., None])


def causal(queries: int, keys: int, ratio: int, offset: int) -> tuple[Tensor, Tensor]:
    """Starts and ends [1,S]: every window that has closed with the query, of those that have a key."""
    positions = offset + torch.arange(queries)
    ends = ((positions + 1) // ratio).clamp(max=keys)[None]
    return torch.zeros_like(ends), ends


def of_documents(documents: tuple[Document, ...], ratio: int) -> tuple[Tensor, Tensor]:
    """Starts and ends [1,T]: each document is causal by itself, its keys behind those of the documents before it."""
    starts, ends, first = [], [], 0
    for document in documents:
        own = causal(document.tokens, document.keys, ratio, offset=0)
        starts.append(own[0] + first)
        ends.append(own[1] + first)
        first += document.keys
    return torch.cat(starts, dim=1), torch.cat(ends, dim=1)


def _cumulative(first: int, lengths: list[int]) -> Tensor:
    return torch.tensor([first + sum(lengths[:n]) for n in range(len(lengths) + 1)], dtype=torch.int32)


def _promised(case: Case, longest: int) -> int | None:
    match case.promise:
        case "none":
            return None
        case "exact":
            return longest
        case "loose":
            return case.keys + 7
        case "broken":
            return longest // 2


def _draw_ranges(case: Case, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Starts and ends int32 [M,S] as a caller may give them, anywhere at all; expanded ones are the same by sample."""
    keys, samples = case.keys, case.batch if case.per_sample else 1
    shape = (1 if case.view == "expanded" else samples, case.queries)

    def draw(low: int, high: int) -> Tensor:
        return torch.randint(low, max(high, low) + 1, shape, generator=generator)

    somewhere = draw(0, keys)
    match case.ranges:
        case "growing":
            starts, ends = causal(case.queries, keys, case.ratio, offset=0)
        case "late":
            starts = torch.zeros(shape, dtype=torch.int64)
            ends = torch.full(shape, keys) - (torch.arange(case.queries) == 0).long()
        case "sliding":
            nth = torch.arange(case.queries).expand(shape)
            starts, ends = nth, keys - 3 * nth
        case "empty":
            starts, ends = somewhere, somewhere
        case "inverted":
            starts, ends = somewhere, somewhere - draw(1, keys + 2)
        case "outside":
            far = torch.tensor([-LARGEST - 1, -9, -1, keys, keys + 1, LARGEST])
            starts, ends = far[draw(0, 5)], far[draw(0, 5)]
        case "mixed":
            kind = draw(0, 5)
            starts = torch.where(kind == 0, draw(-3, keys + 2), torch.where(kind == 1, 0, somewhere))
            ends = torch.where(kind == 1, keys, starts + draw(-2, keys + 2))
    return (
        starts.to(torch.int32).expand(samples, case.queries),
        ends.to(torch.int32).expand(samples, case.queries),
    )
