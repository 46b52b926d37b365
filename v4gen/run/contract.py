"""What a package promises beside numbers: who gets a gradient, in which dtype, and how bad input is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from v4gen.run.cases import Case, late_offset
from v4gen.run.evidence import Measurement
from v4gen.run.measure import holds, same, within
from v4gen.run.subject import Subject
from v4gen.run.tolerance import after_rounding
from v4gen.run.values import SEQUENCE_FIRST

if TYPE_CHECKING:
    from v4gen.read.spec import Spec

INPUTS = ("q", "k", "weights")
GRADIENTS = ("dq", "dk", "dw")


def contract_case(spec: Spec) -> Case:
    """A small problem on which the promises are tried."""
    ratio = spec.compress_ratio
    return Case("contract", 2, 5, 12, ratio, spec.topk, query_offset=late_offset(12, ratio), seed=500)


def measure_autograd(subject: Subject) -> Iterator[Measurement]:
    """Gradients for whom asked and for nobody else, in the input's dtype, and no second derivative."""
    yield from _nobody_asks(subject)
    for position in range(len(INPUTS)):
        yield from _one_asks(subject, position)
    yield _second_derivative(subject)
    yield from _narrow_weights(subject)


def _nobody_asks(subject: Subject) -> Iterator[Measurement]:
    inputs = subject.inputs
    scores, _ = subject.forward(inputs.q, inputs.k, inputs.weights)
    yield holds("no gradient unless asked", not scores.requires_grad, "scores require a gradient, no input does")


def _one_asks(subject: Subject, position: int) -> Iterator[Measurement]:
    asking, name = INPUTS[position], GRADIENTS[position]
    tensors = [t.detach() for t in (subject.inputs.q, subject.inputs.k, subject.inputs.weights)]
    tensors[position].requires_grad_()
    scores, indices = subject.forward(*tensors)
    yield holds(f"indices are constant, {asking}", not indices.requires_grad, "indices require a gradient")
    grad = subject.gradient(indices)
    torch.autograd.backward(scores, grad)
    for other, tensor in zip(INPUTS, tensors, strict=True):
        if other != asking:
            yield holds(f"only {asking} asked, {other}", tensor.grad is None, f"{other} got a gradient")
    found = tensors[position].grad
    exact, bounds = subject.exact_gradients(indices, grad), subject.gradient_bounds(indices, grad)
    reference, bound = after_rounding(getattr(exact, name), getattr(bounds, name), tensors[position].dtype)
    empty = torch.empty(0)
    yield within(f"{name} alone", empty if found is None else subject.batch_first(found), reference, bound)


def _second_derivative(subject: Subject) -> Measurement:
    leaves = subject.leaves()
    scores, _ = subject.forward(*leaves)
    upstream = torch.ones_like(scores, requires_grad=True)
    try:
        (dq,) = torch.autograd.grad(scores, leaves[:1], upstream, create_graph=True)
        if not dq.requires_grad:
            return holds("second derivative refused", False, "dq came back as a constant")
        torch.autograd.backward(dq.float().sum())
    except RuntimeError:
        return holds("second derivative refused", True, "")
    return holds("second derivative refused", False, "it was computed")


def _narrow_weights(subject: Subject) -> Iterator[Measurement]:
    """Weights in q's dtype are widened, and get their gradient in it."""
    q, k = subject.inputs.q, subject.inputs.k
    narrow = subject.inputs.weights.to(q.dtype).requires_grad_()
    scores, indices = subject.forward(q, k, narrow)
    wide, chosen = subject.forward(q, k, narrow.detach().float())
    yield same("weights in q's dtype, scores", scores, wide)
    yield same("weights in q's dtype, indices", indices, chosen)
    (dw,) = torch.autograd.grad(scores, narrow, subject.gradient(indices))
    yield holds("weights in q's dtype, dtype of dw", dw.dtype == narrow.dtype, f"{dw.dtype}, expected {narrow.dtype}")


def measure_refusals(subject: Subject) -> Iterator[Measurement]:
    """Each wrong argument raises ValueError or TypeError with a message that names the argument."""
    inputs, indexer = subject.inputs, subject.package.indexer
    right = {"q": inputs.q, "k": inputs.k, "weights": inputs.weights, "topk_indices": None}
    for what, argument, change in _REFUSALS:
        changed = right | {argument: change(subject)}

        def operator(changed: dict[str, Any] = changed) -> object:
            q, k, weights, given = changed.values()
            return indexer.lightning_indexer(q, k, weights, topk_indices=given)

        yield _refused(f"{argument}: {what}", argument, operator)
        if subject.spec.interface == "seed":

            def seed(changed: dict[str, Any] = changed) -> object:
                q, k, weights, given = changed.values()
                return indexer.v4_lighting_indexer(q, k, weights, subject.case.ratio, subject.case.topk, given)

            yield _refused(f"{argument}: {what}, seed's function", argument, seed)


def _refused(name: str, argument: str, call: Callable[[], object]) -> Measurement:
    try:
        call()
    except (ValueError, TypeError) as error:
        named = re.search(rf"(?<![A-Za-z])(index_)?{argument}(?![A-Za-z])", str(error)) is not None
        return holds(name, named, f"the message does not name it: {error}")
    except Exception as error:
        return holds(name, False, f"{type(error).__name__} instead of ValueError or TypeError: {error}")
    return holds(name, False, "accepted")


def _longer(tensor: Tensor, axis: int) -> Tensor:
    """One more slice along an axis, the first repeated."""
    return torch.cat([tensor, tensor.narrow(axis, 0, 1)], dim=axis)


def _batch_axis(subject: Subject) -> int:
    return 1 if subject.spec.layout == SEQUENCE_FIRST else 0


def _some_indices(subject: Subject, batch: int = 0) -> Tensor:
    shape = (subject.case.batch + batch, subject.case.queries, 3)
    return torch.zeros(shape, dtype=torch.int32, device=subject.device)


_REFUSALS: tuple[tuple[str, str, Callable[[Subject], Any]], ...] = (
    ("rank", "q", lambda s: s.inputs.q[..., 0]),
    ("float32", "q", lambda s: s.inputs.q.float()),
    ("heads", "q", lambda s: _longer(s.inputs.q, 2)),
    ("dim", "q", lambda s: s.inputs.q[..., :-1]),
    ("no tensor", "q", lambda s: [1.0]),
    ("rank", "k", lambda s: s.inputs.k[..., None]),
    ("float32", "k", lambda s: s.inputs.k.float()),
    ("dim", "k", lambda s: s.inputs.k[..., :-1]),
    ("batch", "k", lambda s: _longer(s.inputs.k, _batch_axis(s))),
    ("device", "k", lambda s: s.inputs.k.to("meta")),
    ("rank", "weights", lambda s: s.inputs.weights[..., None]),
    ("heads", "weights", lambda s: s.inputs.weights[..., :-1]),
    ("batch", "weights", lambda s: _longer(s.inputs.weights, _batch_axis(s))),
    ("queries", "weights", lambda s: _longer(s.inputs.weights, 1 - _batch_axis(s))),
    ("float64", "weights", lambda s: s.inputs.weights.double()),
    ("device", "weights", lambda s: s.inputs.weights.to("meta")),
    ("rank", "topk_indices", lambda s: _some_indices(s)[0]),
    ("batch", "topk_indices", lambda s: _some_indices(s, batch=1)),
    ("float", "topk_indices", lambda s: _some_indices(s).float()),
)
