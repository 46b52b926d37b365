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
        yield from _low_level_matrix(subject, matrix)
        if subject.spec.interface == "seed":
            yield from _seed_functions(subject, matrix, scores, indices)


def _indexer_object(subject: Subject, matrix: Tensor, scores: Tensor, indices: Tensor) -> Iterator[Measurement]:
    inputs, indexer = subject.inputs, subject.indexer()
    answers = {
        "LightningIndexer": indexer(inputs.q, inputs.k, inputs.weights, topk_indices=inputs.given, **inputs.mask)
    }
    if inputs.given is None:
        answers["LightningIndexer.select"] = indexer.select(subject.packed(matrix), **inputs.mask)
    for name, (values, chosen) in answers.items():
        yield same(f"{name}, scores", values, subject.packed(scores))
        yield same(f"{name}, indices", chosen, subject.packed(indices))


def _low_level_matrix(subject: Subject, matrix: Tensor) -> Iterator[Measurement]:
    inputs, fwd = subject.inputs, subject.package.fwd
    starts, ends = subject.key_ranges()
    batched = fwd.batched_indexer_fwd(inputs.q, inputs.k, inputs.weights, starts, ends)
    yield same("batched_indexer_fwd", batched, subject.packed(matrix))
    if subject.case.values == "normal":
        yield from _any_ranges(subject, matrix)
    if subject.case.batch == 0:
        return
    sample = subject.case.batch - 1
    q, k, weights = (subject.batch_first(t)[sample] for t in (inputs.q, inputs.k, inputs.weights))
    bounds = (starts, ends) if starts.ndim == 1 else (starts[sample], ends[sample])
    cleaned = fwd.indexer_fwd_interface(q, k, weights, *bounds)
    yield same("indexer_fwd_interface", cleaned, matrix[sample])
    with poisoned_memory():
        raw = fwd.indexer_fwd_interface(q, k, weights, *bounds, clean_logits=False)
    visible = subject.visible.expand(matrix.shape)[sample].to(raw.device)
    yield same("indexer_fwd_interface, not cleaned", raw.masked_fill(~visible, -torch.inf), matrix[sample])
    if all(bool(t.isfinite().all()) for t in (q, k, weights)):
        yield none_of("unwritten scores, not cleaned", raw.isnan() | (raw == torch.inf), raw)


def _any_ranges(subject: Subject, matrix: Tensor) -> Iterator[Measurement]:
    """Ranges that start anywhere, are empty, or reach beyond the keys, beside one that is all keys."""
    inputs, case = subject.inputs, subject.case
    generator = torch.Generator().manual_seed(3000 + case.seed)
    samples = 1 if case.view == "expanded" or subject.spec.layout == "THD" else case.batch
    starts = torch.randint(-3, case.keys + 2, (samples, case.queries), generator=generator, dtype=torch.int32)
    ends = starts + torch.randint(-1, case.keys + 3, starts.shape, generator=generator, dtype=torch.int32)
    every = torch.zeros(case.queries, dtype=torch.int32)

    def scores(first: Tensor, end: Tensor) -> Tensor:
        device, batched = subject.device, subject.package.fwd.batched_indexer_fwd
        return subject.unpacked(batched(inputs.q, inputs.k, inputs.weights, first.to(device), end.to(device))).cpu()

    whole, column = scores(every, every + case.keys), torch.arange(case.keys)
    yield same("scores of all keys", whole.masked_fill(~subject.visible, -torch.inf), matrix.cpu())
    inside = (column >= starts[..., None]) & (column < ends[..., None])
    if samples:
        expected = whole.masked_fill(~inside[-1], -torch.inf)
        yield same("scores of any ranges", scores(starts[-1], ends[-1]), expected)
    if samples > 1:
        expected = whole.masked_fill(~inside, -torch.inf)
        yield same("scores of any ranges by sample", scores(starts, ends), expected)


def _seed_functions(subject: Subject, matrix: Tensor, scores: Tensor, indices: Tensor) -> Iterator[Measurement]:
    inputs, case, module = subject.inputs, subject.case, subject.package.indexer
    gathered = module.pytorch_extract_topk_scores(matrix, subject.unmasked_indices(indices))
    yield same("pytorch_extract_topk_scores", gathered, scores)
    if case.query_offset:
        return
    starts, ends = subject.key_ranges()
    made = subject.package.fwd._make_causal_cu_seqlens(case.queries, case.keys, case.ratio, subject.device)
    yield same("_make_causal_cu_seqlens, starts", made[0], starts)
    # ends past the last key mean the same as N
    yield same("_make_causal_cu_seqlens, ends", made[1].clamp(max=case.keys), ends)
    arguments = (inputs.q, inputs.k, inputs.weights, case.ratio, case.topk, inputs.given)
    for name, function in (
        ("v4_lighting_indexer", module.v4_lighting_indexer),
        ("V4IndexerFunction", module.V4IndexerFunction.apply),
    ):
        values, chosen = function(*arguments)
        yield same(f"{name}, scores", values, scores)
        yield same(f"{name}, indices", chosen, indices)


def sample_backward(
    subject: Subject, indices: Tensor, grad: Tensor, exact: Gradients, bounds: Gradients
) -> Iterator[Measurement]:
    """The backward of one sample, the last one."""
    if subject.case.batch == 0:
        return
    inputs, sample = subject.inputs, subject.case.batch - 1
    q, weights, k = (subject.batch_first(t)[sample] for t in (inputs.q, inputs.weights, inputs.k))
    keys = subject.unmasked_indices(indices)[sample]
    dq, dw, dk = subject.package.bwd.indexer_bwd_interface(q, weights, k, keys, grad[sample])
    for name, found, dtype in (("dq", dq, inputs.q.dtype), ("dw", dw, torch.float32), ("dk", dk, torch.float32)):
        reference, bound = after_rounding(getattr(exact, name)[sample], getattr(bounds, name)[sample], dtype)
        yield within(f"{name}, one sample", found, reference, bound)
