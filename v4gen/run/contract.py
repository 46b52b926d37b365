"""What a package promises beside numbers: who gets a gradient, in which dtype, and how bad input is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from v4gen.run.case import Case, affordable, late
from v4gen.run.evidence import Measurement
from v4gen.run.measure import holds, same, within
from v4gen.run.operators import measure_operators
from v4gen.run.subject import Subject
from v4gen.run.tolerance import after_rounding
from v4gen.run.values import batch_axis

if TYPE_CHECKING:
    from v4gen.read.spec import Spec

INPUTS = ("q", "k", "weights")
GRADIENTS = ("dq", "dk", "dw")


def contract_case(spec: Spec) -> Case:
    """A small problem on which the promises are tried."""
    return replace(affordable(late(spec, "contract", 12, queries=5, batch=2), spec), seed=500)


def measure_autograd(subject: Subject) -> Iterator[Measurement]:
    """Gradients for whom asked and for nobody else, in the input's dtype, and no second derivative."""
    yield from _nobody_asks(subject)
    for position in range(len(INPUTS)):
        yield from _one_asks(subject, position)
    yield _second_derivative(subject)
    yield from _narrow_weights(subject)
    yield from measure_operators(subject)


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
    if subject.spec.interface == "seed":
        yield from _refused_constants(subject)
    indexer, inputs = subject.package.indexer, subject.inputs
    right = {"q": inputs.q, "k": inputs.k, "weights": inputs.weights, "topk_indices": None, **inputs.mask}
    for what, argument, change in _refusals(subject):
        changed = right | {argument: change(subject)}
        yield _refused(f"{argument}: {what}", argument, partial(indexer.lightning_indexer, **changed))
        if subject.spec.interface == "seed" and argument in (*INPUTS, "topk_indices"):
            sizes = (subject.case.ratio, subject.case.topk)
            q, k, weights, given = (changed[name] for name in (*INPUTS, "topk_indices"))
            call = partial(indexer.v4_lighting_indexer, q, k, weights, *sizes, given)
            yield _refused(f"{argument}: {what}, seed's function", argument, call)
        if argument.startswith(("cu_", "max_")):
            mask = {name: value for name, value in changed.items() if name.startswith(("cu_", "max_"))}
            steps, matrix = indexer.LightningIndexer(), subject.packed(subject.matrix())
            call = partial(steps.scores, inputs.q, inputs.k, inputs.weights, **mask)
            yield _refused(f"{argument}: {what}, LightningIndexer.scores", argument, call)
            call = partial(steps.select, matrix, **mask)
            yield _refused(f"{argument}: {what}, LightningIndexer.select", argument, call)


def _refused_constants(subject: Subject) -> Iterator[Measurement]:
    """Ratio and top-k at run time, no others than 1 and above."""
    inputs, right = subject.inputs, {"compress_ratio": subject.case.ratio, "topk": subject.case.topk}
    for argument in right:
        for what, value in (("zero", 0), ("negative", -1), ("no integer", 2.5), ("beyond int32", 2**31)):
            function = subject.package.indexer.v4_lighting_indexer
            call = partial(function, inputs.q, inputs.k, inputs.weights, **right | {argument: value})
            yield _refused(f"{argument}: {what}, seed's function", argument, call)


def _refusals(subject: Subject) -> Iterator[_Refusal]:
    yield from _OF_INPUTS
    if batch_axis(subject.spec.layout) is not None:
        yield from _OF_BATCHES
    told = [name for names in MASK_ARGUMENTS.values() for name in names]
    own = MASK_ARGUMENTS[subject.spec.mask]
    for name in own:
        if name != "max_seqlen_k":
            yield from ((what, name, partial(change, name=name)) for what, change in _OF_MASK_TENSORS)
    # the two of varlen must agree: either may be blamed for the other's length, so only one is tried
    yield from (("length", name, partial(_longer_own, name=name)) for name in own[:2] if name != "cu_seqlens_q")
    if subject.spec.mask == "ranges" and batch_axis(subject.spec.layout) is not None:
        yield "batch", "cu_seqlen_ke", lambda s: _longer(_own(s, "cu_seqlen_ke"), 0)
    yield from ((f"not of mask {subject.spec.mask}", name, _foreign(name)) for name in sorted(set(told) - set(own)))
    if subject.spec.mask == "causal":
        yield "negative", "query_offset", lambda _: -1
        yield "no integer", "query_offset", lambda _: 2.5
        yield "beyond int32", "query_offset", lambda s: 2**31 - s.case.queries
    else:
        yield "not of this mask", "query_offset", lambda _: 1
        yield "negative", "max_seqlen_k", lambda _: -1
        yield "no integer", "max_seqlen_k", lambda _: 2.5


def _refused(name: str, argument: str, call: Callable[[], object]) -> Measurement:
    try:
        call()
    except (ValueError, TypeError) as error:
        named = re.search(rf"(?<![A-Za-z_])(index_)?{argument}(?![A-Za-z_])", str(error)) is not None
        return holds(name, named, f"the message does not name it: {error}")
    except Exception as error:
        return holds(name, False, f"{type(error).__name__} instead of ValueError or TypeError: {error}")
    return holds(name, False, "accepted")


def _longer(tensor: Tensor, axis: int) -> Tensor:
    """One more slice along an axis, the first repeated."""
    return torch.cat([tensor, tensor.narrow(axis, 0, 1)], dim=axis)


def _batch_axis(subject: Subject) -> int:
    axis = batch_axis(subject.spec.layout)
    assert axis is not None  # asked of layouts that have one
    return axis


def _query_axis(subject: Subject) -> int:
    return 1 if subject.spec.layout == "BSHD" else 0


def _some_indices(subject: Subject, batch: int = 0, queries: int = 0) -> Tensor:
    shape = (subject.case.batch + batch, subject.case.queries + queries, 3)
    return subject.packed(torch.zeros(shape, dtype=torch.int32, device=subject.device))


def _own(subject: Subject, name: str) -> Tensor:
    value = subject.inputs.mask[name]
    assert isinstance(value, Tensor)
    return value


def _longer_own(subject: Subject, name: str) -> Tensor:
    return _longer(_own(subject, name), -1)


def _foreign(name: str) -> Callable[[Subject], object]:
    """An argument of another mask, good by itself."""
    if name == "max_seqlen_k":
        return lambda _: 100
    length = 2 if name.startswith("cu_seqlens") else None

    def made(subject: Subject) -> Tensor:
        return torch.zeros(length or subject.case.queries, dtype=torch.int32, device=subject.device)

    return made


_Refusal = tuple[str, str, Callable[[Subject], object]]

MASK_ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "causal": (),
    "ranges": ("cu_seqlen_ks", "cu_seqlen_ke", "max_seqlen_k"),
    "varlen": ("cu_seqlens_q", "cu_seqlens_k", "max_seqlen_k"),
}

_OF_INPUTS: tuple[_Refusal, ...] = (
    ("rank", "q", lambda s: s.inputs.q[..., 0]),
    ("float32", "q", lambda s: s.inputs.q.float()),
    ("heads", "q", lambda s: _longer(s.inputs.q, -2)),
    ("dim", "q", lambda s: s.inputs.q[..., :-1]),
    ("no tensor", "q", lambda s: [1.0]),
    ("rank", "k", lambda s: s.inputs.k[..., None]),
    ("float32", "k", lambda s: s.inputs.k.float()),
    ("dim", "k", lambda s: s.inputs.k[..., :-1]),
    ("device", "k", lambda s: s.inputs.k.to("meta")),
    ("rank", "weights", lambda s: s.inputs.weights[..., None]),
    ("heads", "weights", lambda s: s.inputs.weights[..., :-1]),
    ("queries", "weights", lambda s: _longer(s.inputs.weights, _query_axis(s))),
    ("float64", "weights", lambda s: s.inputs.weights.double()),
    ("device", "weights", lambda s: s.inputs.weights.to("meta")),
    ("rank", "topk_indices", lambda s: _some_indices(s)[0]),
    ("queries", "topk_indices", lambda s: _some_indices(s, queries=1)),
    ("float", "topk_indices", lambda s: _some_indices(s).float()),
)

_OF_BATCHES: tuple[_Refusal, ...] = (
    ("batch", "k", lambda s: _longer(s.inputs.k, _batch_axis(s))),
    ("batch", "weights", lambda s: _longer(s.inputs.weights, _batch_axis(s))),
    ("batch", "topk_indices", lambda s: _some_indices(s, batch=1)),
)

_OF_MASK_TENSORS: tuple[tuple[str, Callable[..., object]], ...] = (
    ("missing", lambda _, name: None),
    ("int64", lambda s, name: _own(s, name).long()),
    ("float32", lambda s, name: _own(s, name).float()),
    ("rank", lambda s, name: _own(s, name)[..., 0]),
    ("rank 3", lambda s, name: _own(s, name)[None, None]),
    ("device", lambda s, name: _own(s, name).to("meta")),
    ("no tensor", lambda s, name: _own(s, name).tolist()),
)
