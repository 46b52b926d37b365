"""The package's own reference, plain torch for people to read: it is held against the oracle like the kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from v4gen.run import oracle
from v4gen.run.case import Case, affordable, deep_keys, growing, late
from v4gen.run.evidence import Measurement
from v4gen.run.measure import same, within
from v4gen.run.subject import Subject
from v4gen.run.tolerance import Arithmetic, gradient_bounds, score_bounds

if TYPE_CHECKING:
    from v4gen.read.spec import Spec

DOUBLE = Arithmetic(2.0**-53, torch.float64)


def reference_cases(spec: Spec) -> Iterator[Case]:
    """A whole sequence, ranges of any kind, few keys, and more than top-k of which many are equal."""
    whole = replace(growing(spec, "reference", 45, batch=2), ranges="mixed")
    few = growing(spec, "reference, few keys", 3 * min(spec.compress_ratio, 16) + 1, keys=3)
    deep = replace(late(spec, "reference, tied keys", deep_keys(spec)), values="ties")
    for seed, case in enumerate((whole, few, deep)):
        yield replace(affordable(case, spec), seed=900 + seed)


def measure_reference(subject: Subject) -> Iterator[Measurement]:
    """Its scores, selection and gradients in float64, of a package that has one."""
    reference, inputs = subject.package.reference, subject.inputs
    assert reference is not None
    leaves = [tensor.detach().double().requires_grad_() for tensor in (inputs.q, inputs.k, inputs.weights)]
    offset = {"query_offset": subject.case.query_offset} if subject.spec.mask == "causal" else {}
    matrix = subject.unpacked(reference.reference_scores(*leaves, **offset, **inputs.mask).detach()).cpu()
    yield within("scores of the reference", matrix, subject.exact_scores, score_bounds(subject.problem, DOUBLE))
    yield same("mask of the reference", matrix.isneginf(), ~subject.visible.expand(matrix.shape))

    scores, indices = reference.reference_indexer(*leaves, **offset, **inputs.mask)
    best, keys = oracle.select(
        matrix, subject.visible, topk=subject.case.topk, width=subject.spec.width, order=subject.spec.order
    )
    yield same("indices of the reference", subject.unpacked(indices), subject.mask.to_indices(keys))
    yield same("selected scores of the reference", subject.unpacked(scores), best)

    grad = subject.gradient(subject.unpacked(indices))
    found = torch.autograd.grad(scores, leaves, subject.packed(grad).to(scores.dtype))
    exact = subject.exact_gradients(subject.unpacked(indices), grad)
    bounds = gradient_bounds(subject.problem, keys, grad.cpu(), DOUBLE)
    for name, gradient in zip(("dq", "dk", "dw"), found, strict=True):
        yield within(
            f"{name} of the reference", subject.batch_first(gradient), getattr(exact, name), getattr(bounds, name)
        )
