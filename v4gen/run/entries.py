"""The package's other ways in must give what its main function gives, to the bit where nothing may be reordered."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from v4gen.run.evidence import Measurement
from v4gen.run.measure import none_of, same, within
from v4gen.run.oracle import Gradients
from v4gen.run.poison import poisoned_memory
from v4gen.run.subject import Subject
from v4gen.run.tolerance import after_rounding


def entry_points(subject: Subject, matrix: Tensor, scores: Tensor, indices: Tensor) -> Iterator[Measurement]:
    """Compare every forward entry point with the main function's `scores` and `indices` and with the score matrix."""
    with torch.no_grad():
        if not subject.case.sets_constants(subject.spec):
            yield from _indexer_object(subject, matrix, scores, indices)
        if subject.spec.interface == "seed":
            yield from _seed_matrix(subject, matrix)
            yield from _seed_functions(subject, matrix, scores, indices)


def _indexer_object(subject: Subject, matrix: Tensor, scores: Tensor, indices: Tensor) -> Iterator[Measurement]:
    if subject.inputs.given is not None:
        return
    inputs = subject.inputs
    indexer = subject.package.indexer.LightningIndexer(query_offset=subject.case.query_offset)
    for name, (values, chosen) in (
        ("LightningIndexer", indexer(inputs.q, inputs.k, inputs.weights)),
        ("LightningIndexer.select", indexer.select(matrix)),
    ):
        yield same(f"{name}, scores", values, scores)
        yield same(f"{name}, indices", chosen, indices)


def _seed_functions(subject: Subject, matrix: Tensor, scores: Tensor, indices: Tensor) -> Iterator[Measurement]:
    inputs, case, module = subject.inputs, subject.case, subject.package.indexer
    gathered = module.pytorch_extract_topk_scores(matrix, subject.unmasked_indices(indices))
    yield same("pytorch_extract_topk_scores", gathered, scores)
    if case.query_offset:
        return
    arguments = (inputs.q, inputs.k, inputs.weights, case.ratio, case.topk, inputs.given)
    for name, function in (
        ("v4_lighting_indexer", module.v4_lighting_indexer),
        ("V4IndexerFunction", module.V4IndexerFunction.apply),
    ):
        values, chosen = function(*arguments)
        yield same(f"{name}, scores", values, scores)
        yield same(f"{name}, indices", chosen, indices)


def _seed_matrix(subject: Subject, matrix: Tensor) -> Iterator[Measurement]:
    inputs, fwd = subject.inputs, subject.package.fwd
    starts, ends = subject.key_ranges()
    batched = fwd.batched_indexer_fwd(inputs.q, inputs.k, inputs.weights, starts, ends)
    yield same("batched_indexer_fwd", batched, matrix)
    if subject.case.values == "normal":
        yield from _any_ranges(subject, matrix)
    if subject.case.query_offset == 0:
        made = fwd._make_causal_cu_seqlens(subject.case.queries, subject.case.keys, subject.case.ratio, subject.device)
        yield same("_make_causal_cu_seqlens, starts", made[0], starts)
        # ends past the last key mean the same as N
        yield same("_make_causal_cu_seqlens, ends", made[1].clamp(max=subject.case.keys), ends)
    if subject.case.batch == 0:
        return
    sample = subject.case.batch - 1
    q, k, weights = inputs.q[:, sample], inputs.k[:, sample], inputs.weights[:, sample]
    cleaned = fwd.indexer_fwd_interface(q, k, weights, starts, ends)
    yield same("indexer_fwd_interface", cleaned, matrix[sample])
    with poisoned_memory():
        raw = fwd.indexer_fwd_interface(q, k, weights, starts, ends, clean_logits=False)
    visible = subject.visible.to(raw.device)
    yield same("indexer_fwd_interface, not cleaned", raw.masked_fill(~visible, -torch.inf), matrix[sample])
    if all(bool(t.isfinite().all()) for t in (q, k, weights)):
        yield none_of("unwritten scores, not cleaned", raw.isnan() | (raw == torch.inf), raw)


def _any_ranges(subject: Subject, matrix: Tensor) -> Iterator[Measurement]:
    """Ranges that start anywhere, are empty, or reach beyond the keys, beside one that is all keys."""
    inputs, queries, keys = subject.inputs, subject.case.queries, subject.case.keys
    generator = torch.Generator().manual_seed(3000 + subject.case.seed)
    starts = torch.randint(-3, keys + 2, (queries,), generator=generator, dtype=torch.int32)
    ends = starts + torch.randint(-1, keys + 3, (queries,), generator=generator, dtype=torch.int32)
    every, last = torch.zeros_like(starts), torch.full_like(ends, keys)

    def scores(first: Tensor, end: Tensor) -> Tensor:
        device = subject.device
        batched = subject.package.fwd.batched_indexer_fwd
        result: Tensor = batched(inputs.q, inputs.k, inputs.weights, first.to(device), end.to(device))
        return result.cpu()

    whole, matrix, column = scores(every, last), matrix.cpu(), torch.arange(keys)
    yield same("scores of all keys", whole.masked_fill(~subject.visible, -torch.inf), matrix)
    inside = (column >= starts[:, None]) & (column < ends[:, None])
    yield same("scores of any ranges", scores(starts, ends), whole.masked_fill(~inside, -torch.inf))


def sample_backward(
    subject: Subject, indices: Tensor, grad: Tensor, exact: Gradients, bounds: Gradients
) -> Iterator[Measurement]:
    """The seed's backward of one sample, the last one."""
    if subject.spec.interface != "seed" or subject.case.batch == 0:
        return
    inputs, sample = subject.inputs, subject.case.batch - 1
    dq, dw, dk = subject.package.bwd.indexer_bwd_interface(
        inputs.q[:, sample], inputs.weights[:, sample], inputs.k[:, sample], indices[sample], grad[sample]
    )
    for name, found, dtype in (("dq", dq, inputs.q.dtype), ("dw", dw, torch.float32), ("dk", dk, torch.float32)):
        reference, bound = after_rounding(getattr(exact, name)[sample], getattr(bounds, name)[sample], dtype)
        yield within(f"{name}, one sample", found, reference, bound)
