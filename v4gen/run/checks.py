"""What every case is held to: scores, selection, gradients, and that nothing else was touched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf

import torch
from torch import Tensor

from v4gen.run import oracle
from v4gen.run.bias import sign_bias
from v4gen.run.entries import entry_points, sample_backward
from v4gen.run.evidence import Measurement
from v4gen.run.measure import holds, none_of, same, within
from v4gen.run.oracle import Gradients
from v4gen.run.poison import poisoned_memory
from v4gen.run.subject import Subject
from v4gen.run.tolerance import after_rounding


@dataclass(frozen=True)
class Answer:
    """What the package returned for a case: the score matrix, and the selected scores with their indices."""

    matrix: Tensor
    scores: Tensor
    indices: Tensor


def measure(subject: Subject) -> Iterator[Measurement]:
    """Every measurement of one case, in a fixed order. What the package raises is passed on."""
    before = {name: _memory(tensor).clone() for name, tensor in subject.inputs.tensors.items()}
    answer = _answer(subject)
    yield from _score_matrix(subject, answer.matrix)
    yield from _selection(subject, answer)
    yield from entry_points(subject, answer.matrix, answer.scores, answer.indices)
    yield from _training(subject, answer)
    yield from _golden_forward(subject, answer)
    changed = [
        name for name, tensor in subject.inputs.tensors.items() if not torch.equal(_memory(tensor), before[name])
    ]
    yield holds("inputs unmodified", not changed, f"written: {', '.join(changed)}")


def measure_selection(subject: Subject) -> Iterator[Measurement]:
    """The selection alone, from the scores that the package computed: for cases too large for the oracle."""
    answer = _answer(subject)
    yield from _selection(subject, answer)
    yield from entry_points(subject, answer.matrix, answer.scores, answer.indices)


def _answer(subject: Subject) -> Answer:
    inputs = subject.inputs
    with torch.no_grad():
        return Answer(subject.matrix(), *subject.forward(inputs.q, inputs.k, inputs.weights))


def _memory(tensor: Tensor) -> Tensor:
    """The bytes of the whole buffer that a tensor lies in."""
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())


def _score_matrix(subject: Subject, matrix: Tensor) -> Iterator[Measurement]:
    exact, actual = subject.exact_scores, matrix.cpu()
    yield holds("dtype of scores", matrix.dtype == torch.float32, f"{matrix.dtype}")
    bounds = subject.score_bounds()
    yield within("scores", actual, exact, bounds)
    if actual.shape != exact.shape:
        return
    yield from sign_bias(subject, "scores", actual, exact, bounds)
    hidden = ~subject.visible.expand(exact.shape)
    yield none_of("scores outside the mask", hidden & (actual != -inf), actual)
    non_finite = (actual.isnan() != exact.isnan()) | ((actual == inf) != (exact == inf))
    yield none_of("NaN and inf", (non_finite | ((actual == -inf) != (exact == -inf))) & ~hidden, actual)
    yield none_of("sign of zero", (actual == 0) & actual.signbit(), actual)


def _selection(subject: Subject, answer: Answer) -> Iterator[Measurement]:
    """Selection is exact: the oracle's order applied to the very scores that the package computed."""
    spec, given, visible = subject.spec, subject.given(), subject.visible
    matrix, indices = answer.matrix.cpu(), answer.indices.cpu()
    if given is None:
        scores, keys = oracle.select(matrix, visible, topk=subject.case.topk, width=spec.width, order=spec.order)
        yield same("selected indices", indices, subject.mask.to_indices(keys))
        yield none_of("indices repeated", _repeated(indices), indices)
    else:
        keys = subject.keys(given)
        scores = oracle.replay(matrix, visible, keys)
        # whether a void index comes back as it was or as -1 is the package's choice
        blanked = (indices == -1) & oracle.is_void(keys, visible)
        yield same("given indices", torch.where(blanked, given, indices), given)
    yield same("selected scores", answer.scores, scores)
    yield none_of("sign of zero, selected", (answer.scores == 0) & answer.scores.signbit(), answer.scores)


def _repeated(indices: Tensor) -> Tensor:
    ordered = indices.sort(-1).values
    return (ordered[..., 1:] == ordered[..., :-1]) & (ordered[..., 1:] >= 0)


def _training(subject: Subject, answer: Answer) -> Iterator[Measurement]:
    """A second forward, recorded by autograd and in poisoned memory, and the backward passes."""
    with poisoned_memory() as memory:
        leaves = subject.leaves()
        scores, indices = subject.forward(*leaves)
        grad = subject.gradient(indices)
        upstream = _memory(grad).clone()
        found = torch.autograd.grad(scores, leaves, grad)
    yield same("scores, repeated under grad", scores, answer.scores)
    yield same("indices, repeated under grad", indices, answer.indices)
    given = subject.given()
    at = indices if given is None else given
    exact, bounds = subject.exact_gradients(at, grad), subject.gradient_bounds(at, grad)
    yield from _gradients(subject, "", found, exact, bounds, tuple(leaf.dtype for leaf in leaves))
    yield from _low_level(subject, at, grad, exact, bounds)
    yield from _deterministic(subject, grad, exact, bounds)
    yield from _golden_backward(subject, found)
    yield holds("writes past an output", memory.overruns() == 0, f"{memory.overruns()} elements")
    yield holds("gradient unmodified", torch.equal(_memory(grad), upstream), "the upstream gradient was written")


def _gradients(
    subject: Subject,
    suffix: str,
    found: tuple[Tensor, ...],
    exact: Gradients,
    bounds: Gradients,
    dtypes: tuple[torch.dtype, ...],
) -> Iterator[Measurement]:
    names = ("dq", "dk", "dw")
    for name, actual, dtype in zip(names, found, dtypes, strict=True):
        reference, bound = after_rounding(getattr(exact, name), getattr(bounds, name), dtype)
        yield holds(f"dtype of {name}{suffix}", actual.dtype == dtype, f"{actual.dtype}, expected {dtype}")
        gradient = subject.batch_first(actual)
        yield within(f"{name}{suffix}", gradient, reference, bound)
        if gradient.shape == reference.shape:
            lost = ~reference.isfinite() & gradient.cpu().isfinite()
            yield none_of(f"{name}{suffix}, NaN and inf", lost, gradient)
            yield from sign_bias(subject, f"{name}{suffix}", gradient, reference, bound)


def _low_level(
    subject: Subject, indices: Tensor, grad: Tensor, exact: Gradients, bounds: Gradients
) -> Iterator[Measurement]:
    """The backward that takes indices and gradients, in poisoned memory; its dk and dw are float32."""
    dtypes = (subject.inputs.q.dtype, torch.float32, torch.float32)
    with poisoned_memory() as memory:
        dq, dw, dk = subject.backward(indices, grad)
    yield from _gradients(subject, ", low level", (dq, dk, dw), exact, bounds, dtypes)
    yield holds("writes past an output, low level", memory.overruns() == 0, f"{memory.overruns()} elements")
    yield from sample_backward(subject, indices, grad, exact, bounds)


def _deterministic(subject: Subject, grad: Tensor, exact: Gradients, bounds: Gradients) -> Iterator[Measurement]:
    """Two backward passes that promise the same bits: as asked of torch, and by default where the spec says so."""
    with deterministic_algorithms(not subject.spec.backward.deterministic):
        runs = []
        for _ in range(2):
            leaves = subject.leaves()
            runs.append(torch.autograd.grad(subject.forward(*leaves)[0], leaves, grad))
    for name, first, second in zip(("dq", "dk", "dw"), *runs, strict=True):
        yield same(f"{name}, repeated", second, first)
    dtypes = tuple(leaf.dtype for leaf in leaves)
    if subject.device != "cpu":
        # Fixed point has no NaN: a GPU's reproducible sums mark a key as a whole where a term of it is not finite. So
        # what is a NaN there is right; what is a number has to be the right one.
        broken = ~exact.dk.isfinite().all(-1, keepdim=True)
        marked = broken & subject.batch_first(runs[0][1]).cpu().isnan()
        exact = replace(exact, dk=exact.dk.masked_fill(marked, torch.nan))
    yield from _gradients(subject, ", deterministic", runs[0], exact, bounds, dtypes)


@contextmanager
def deterministic_algorithms(wanted: bool) -> Iterator[None]:
    """torch's switch, on inside the context if `wanted` or if it is on already."""
    before = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(wanted or before, warn_only=warn_only)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warn_only)


def _sum_is(name: str, values: Tensor, expected: int) -> Measurement:
    total = float(values.detach().cpu().double().sum())
    return Measurement(name, abs(total - expected), 0, f"{total:.17g}, expected {expected}")


def _golden_forward(subject: Subject, answer: Answer) -> Iterator[Measurement]:
    table = subject.case.golden
    if table is None:
        return
    seen = answer.matrix.double().cpu()[subject.visible.expand(answer.matrix.shape)]
    chosen = answer.indices >= 0
    yield _sum_is("golden visible pairs", torch.ones_like(seen), table.visible_pairs)
    yield _sum_is("golden sum of scores", seen, table.sum_scores)
    yield _sum_is("golden sum of squared scores", seen.square(), table.sum_squared_scores)
    yield _sum_is("golden selected", chosen, table.selected)
    yield _sum_is("golden sum of selected scores", answer.scores[chosen], table.sum_selected)
    yield _sum_is("golden sum of indices", answer.indices[chosen], table.sum_indices)
    # the row's set and its scores are the same in either order
    last = sorted(zip(answer.indices[-1, -1].tolist(), answer.scores[-1, -1].tolist(), strict=True))
    expected = sorted(zip(table.last_indices, table.last_scores, strict=True))
    yield holds("golden last row", last == expected, f"{last}, expected {expected}")


def _golden_backward(subject: Subject, found: tuple[Tensor, ...]) -> Iterator[Measurement]:
    table = subject.case.golden
    if table is None:
        return
    for name, gradient in zip(("dq", "dk", "dw"), found, strict=True):
        yield _sum_is(f"golden sum of {name}", gradient, getattr(table, f"sum_{name}"))
        yield _sum_is(f"golden sum of |{name}|", gradient.double().abs(), getattr(table, f"sum_abs_{name}"))
