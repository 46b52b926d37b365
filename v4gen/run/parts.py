"""A sequence computed in parts must be the sequence computed at once, to the bit where a query stands alone.

Scores, selection, dq and dw belong to one query. dk is a sum over queries, whose order may differ between the parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from v4gen.run.case import Case, affordable, deep_keys, late, packed
from v4gen.run.evidence import Measurement
from v4gen.run.measure import same, within
from v4gen.run.subject import Subject
from v4gen.run.values import Inputs, draw_mask, make_problem, told

if TYPE_CHECKING:
    from v4gen.read.spec import Spec


@dataclass(frozen=True)
class _Part:
    """Some queries with the keys that they are given, as a subject of its own."""

    subject: Subject
    rows: slice
    keys: slice


@dataclass(frozen=True)
class _Answer:
    """What one call gives: `keys` are the selected ones among all of the sequence, `dk` is in float32."""

    scores: Tensor
    keys: Tensor
    dq: Tensor
    dw: Tensor
    dk: Tensor


def parts_case(spec: Spec) -> Case | None:
    """A sequence to cut: into documents, or into the shares of context-parallel ranks; None for ranges."""
    if spec.mask == "ranges":
        return None
    if spec.mask == "causal":
        return replace(affordable(late(spec, "context parallel", deep_keys(spec), queries=11, batch=2), spec), seed=700)
    window = min(spec.compress_ratio, 64)
    lengths = (2 * window + 1, 0, 1, 7 * window - 1, window, 19)
    return replace(packed(spec, "documents alone", [(n, n // window + n % 2) for n in lengths]), seed=700)


def measure_parts(subject: Subject) -> Iterator[Measurement]:
    """Each part by itself against the whole."""
    everything = _Part(subject, slice(0, subject.case.queries), slice(0, subject.case.keys))
    inputs = subject.inputs
    _, indices = subject.forward(inputs.q, inputs.k, inputs.weights)
    grad = subject.gradient(indices)
    whole = _answer(everything, grad)
    parts = [_answer(part, grad) for part in _parts(subject)]
    for name in ("scores", "keys", "dq", "dw"):
        yield same(f"{name}, in parts", torch.cat([getattr(part, name) for part in parts], 1), getattr(whole, name))
    exact, bounds = subject.exact_gradients(indices, grad), subject.gradient_bounds(indices, grad)
    total = torch.zeros_like(exact.dk)
    for part, answer in zip(_parts(subject), parts, strict=True):
        total[:, part.keys] += answer.dk.cpu()
    # each part sums fewer terms than the whole, and float64 adds the parts: the bound of the whole covers them
    yield within("dk, in parts", total, exact.dk, bounds.dk)


def _parts(subject: Subject) -> Iterator[_Part]:
    case, spec = subject.case, subject.spec
    if spec.mask == "causal":
        cuts = (0, case.queries // 5, case.queries // 2, case.queries)
        for start, stop in pairwise(cuts):
            share = replace(case, queries=stop - start, query_offset=case.query_offset + start)
            yield _cut(subject, share, slice(start, stop), slice(0, case.keys))
        return
    token = key = 0
    for document in case.documents:
        rows, keys = slice(token, token + document.tokens), slice(key, key + document.keys)
        yield _cut(subject, packed(spec, case.name, [document]), rows, keys)
        token, key = rows.stop, keys.stop


def _cut(subject: Subject, case: Case, rows: slice, keys: slice) -> _Part:
    def some(tensor: Tensor, along: slice) -> Tensor:
        return subject.in_layout(subject.batch_first(tensor)[:, along])

    mask, whole = draw_mask(case, subject.spec), subject.inputs
    inputs = Inputs(
        some(whole.q, rows), some(whole.k, keys), some(whole.weights, rows), None, told(mask, case.view, subject.device)
    )
    problem = make_problem(case, subject.spec, inputs)
    return _Part(replace(subject, case=case, inputs=inputs, mask=mask, problem=problem), rows, keys)


def _answer(part: _Part, grad: Tensor) -> _Answer:
    subject, width = part.subject, grad.shape[-1]
    leaves = subject.leaves()
    scores, indices = subject.forward(*leaves)
    columns = indices.shape[-1]  # fewer than the whole has, where the width is the number of keys
    upstream = grad[:, part.rows, :columns]
    dq, _, dw = torch.autograd.grad(scores, leaves, upstream)
    _, _, dk = subject.backward(indices, upstream)
    keys = subject.keys(indices)
    keys = torch.where(keys < 0, keys, keys + part.keys.start)
    missing = (0, width - columns)
    return _Answer(
        torch.nn.functional.pad(scores.detach(), missing, value=-inf),
        torch.nn.functional.pad(keys, missing, value=-1),
        subject.batch_first(dq),
        subject.batch_first(dw),
        subject.batch_first(dk),
    )
