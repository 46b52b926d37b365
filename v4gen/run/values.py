"""The tensors of a case: adversarial values, given indices, upstream gradients, and the views that they arrive in.

Everything follows from the case and its seed. Every input lies inside a larger buffer of NaN (given indices: of an
index far outside), so that a read outside the tensor shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf, nan
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from v4gen.run.case import Case, Values, View
from v4gen.run.golden import golden_gradient, golden_inputs
from v4gen.run.mask import Mask, make_mask
from v4gen.run.oracle import Problem, is_void

if TYPE_CHECKING:
    from v4gen.read.spec import Spec

GUARD = 256
"""Elements of poison on either side of a contiguous input; keeps 16-byte alignment."""

EXACT_VALUES: frozenset[Values] = frozenset(
    {"integers", "counting", "ties", "equal", "ends", "low mantissa", "stripes", "golden"}
)


@dataclass(frozen=True)
class Inputs:
    """What a package is called with: q, k and weights in the spec's layout, given indices [B,S,C] ([T,C]) or None.

    `mask` are the arguments that tell the mask, beside `query_offset`.
    """

    q: Tensor
    k: Tensor
    weights: Tensor
    given: Tensor | None
    mask: Mapping[str, Tensor | int]

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All tensors by the names of their arguments, for what is done to each of them alike."""
        named = {"q": self.q, "k": self.k, "weights": self.weights, "topk_indices": self.given, **self.mask}
        return {name: value for name, value in named.items() if isinstance(value, Tensor)}


def batch_first(tensor: Tensor, layout: str) -> Tensor:
    """q, k, weights or a gradient of one in the layout, batch first; packed tokens become one sample."""
    if layout == "THD":
        return tensor[None]
    return tensor.transpose(0, 1) if layout == "SBHD" else tensor


def in_layout(tensor: Tensor, layout: str) -> Tensor:
    """The inverse of `batch_first`."""
    return tensor[0] if layout == "THD" else batch_first(tensor, layout)


def batch_axis(layout: str) -> int | None:
    """Which axis of q, k and weights is the batch; packed tokens have none."""
    return {"SBHD": 1, "BSHD": 0, "THD": None}[layout]


def draw_mask(case: Case, spec: Spec) -> Mask:
    """The mask of `case` for `spec`."""
    return make_mask(case, spec, torch.Generator().manual_seed(4000 + case.seed))


def make_inputs(case: Case, spec: Spec, device: str) -> Inputs:
    """The input tensors of `case` for `spec`, on `device`."""
    generator = torch.Generator().manual_seed(1000 + case.seed)
    drawn = _draw(case, spec, generator)
    dtypes = (getattr(torch, spec.dtype), getattr(torch, spec.dtype), torch.float32)
    arranged = [in_layout(values.to(dtype), spec.layout) for values, dtype in zip(drawn, dtypes, strict=True)]
    axis = batch_axis(spec.layout)
    q, k, weights = (_as_view(tensor.to(device), case.view, axis) for tensor in arranged)
    mask = draw_mask(case, spec)
    given = _given_indices(case, mask, generator)
    if given is not None:
        given = _embedded((given[0] if spec.layout == "THD" else given).to(device))
    return Inputs(q, k, weights, given, told(mask, case.view, device))


def make_problem(case: Case, spec: Spec, inputs: Inputs) -> Problem:
    """The same numbers for the oracle: float64, batch first, on the CPU."""
    q, k, weights = (batch_first(t.cpu(), spec.layout).double() for t in (inputs.q, inputs.k, inputs.weights))
    return Problem(q, k, weights, draw_mask(case, spec).visible(case.keys), spec.weight_scale)


def make_gradient(case: Case, indices: Tensor, visible: Tensor, device: str) -> Tensor:
    """The upstream gradient float32 [B,S,C] of scores at `indices`, on `device`, in the case's memory order.

    `indices` [B,S,C], positions among all keys, and `visible` [M,S,N] are on the CPU.
    """
    if case.gradient == "expanded":  # expanded where it is needed: a copy to another device would be dense
        return torch.tensor(1.5, device=device).expand(indices.shape)
    return _dense_gradient(case, indices, visible).to(device)


def _dense_gradient(case: Case, indices: Tensor, visible: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(2000 + case.seed)
    batch, queries, columns = indices.shape
    if case.gradient == "by key":
        by_key = torch.tensor([[golden_gradient(t, s) for s in range(case.keys)] for t in range(queries)])
        return by_key.expand(batch, -1, -1).gather(-1, indices.long().clamp(min=0)).float()
    if case.values in EXACT_VALUES:
        lowest = 1 if case.values == "counting" else -2
        grad = torch.randint(lowest, 3, indices.shape, generator=generator).float()
    else:
        grad = torch.randn(indices.shape, generator=generator)
    if case.gradient == "tiny":
        grad = grad * 5e-7
    if case.gradient == "uneven":
        grad[:, ::2] *= 5e-7
    if case.gradient == "transposed":
        return grad.transpose(0, 2).contiguous().transpose(0, 2)
    if case.gradient == "non-finite void":
        poison = torch.tensor([nan, inf, -inf])[torch.arange(columns) % 3]
        return torch.where(is_void(indices, visible), poison, grad)
    return grad


def _draw(case: Case, spec: Spec, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """q [B,S,H,D], k [B,N,D] and weights [B,S,H] in float64, before they are rounded to their dtypes."""
    shapes = (
        (case.batch, case.queries, spec.heads, spec.dim),
        (case.batch, case.keys, spec.dim),
        (case.batch, case.queries, spec.heads),
    )
    if case.golden is not None:
        flat = [torch.tensor(numbers, dtype=torch.float64) for numbers in golden_inputs(case.golden)]
        return flat[0].reshape(shapes[0]), flat[1].reshape(shapes[1]), flat[2].reshape(shapes[2])
    noise = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    return _SHAPERS.get(case.values, _plain)(noise[0], noise[1], noise[2] * spec.heads**-0.5, generator)


_Drawn = tuple[Tensor, Tensor, Tensor]
_Shaper = Callable[[Tensor, Tensor, Tensor, torch.Generator], _Drawn]


def _plain(q: Tensor, k: Tensor, weights: Tensor, _: torch.Generator) -> _Drawn:
    return q, k, weights


def _integers_between(low: int, high: int, like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randint(low, high + 1, like.shape, generator=generator).double()


def _integers(q: Tensor, k: Tensor, weights: Tensor, generator: torch.Generator) -> _Drawn:
    q = _integers_between(-2, 2, q, generator)
    return q, _integers_between(-2, 2, k, generator), _integers_between(-3, 3, weights, generator)


def _counting(q: Tensor, k: Tensor, weights: Tensor, generator: torch.Generator) -> _Drawn:
    """Mostly positive integers: sums grow with every term, so an accumulator of few bits loses some."""
    q = _integers_between(0, 3, q, generator)
    return q, _integers_between(-1, 3, k, generator), _integers_between(1, 4, weights, generator)


def _ties(q: Tensor, k: Tensor, weights: Tensor, generator: torch.Generator) -> _Drawn:
    """Five different keys, one of them zero, repeated over the whole sequence."""
    q, k, weights = _integers(q, k, weights, generator)
    distinct = k[:, :5].clone()
    distinct[:, :1] = 0
    which = torch.randint(0, max(distinct.shape[1], 1), k.shape[1:2], generator=generator)
    return q, distinct[:, which], weights


def _equal(q: Tensor, k: Tensor, weights: Tensor, generator: torch.Generator) -> _Drawn:
    """One key, over and over."""
    q, k, weights = _integers(q, k, weights, generator)
    return q, k[:, :1].expand(k.shape), weights


def _ends(q: Tensor, k: Tensor, weights: Tensor, _: torch.Generator) -> _Drawn:
    """Scores |2j - N| of key j: the farther from the middle the better, and equal on either side of it."""
    q, k, weights = (torch.zeros_like(t) for t in (q, k, weights))
    score = (2 * torch.arange(k.shape[1]) - k.shape[1]).abs()
    q[..., 0, 0], k[..., 0] = 128, score // 128
    q[..., 0, 1], k[..., 1] = 1, score % 128
    weights[..., 0] = 1
    return q, k, weights


def _plateaus(q: Tensor, k: Tensor, weights: Tensor, generator: torch.Generator) -> _Drawn:
    """Most products are clamped to zero, and every other query's weights are negative: zeros of either sign."""
    negative = torch.rand(k.shape[:2], generator=generator) < 0.9
    k = torch.where(negative[..., None], -k.abs(), k.abs())
    q = torch.where(torch.rand(q.shape, generator=generator) < 0.1, -0.0, q.abs())
    sign = 1 - 2 * (torch.arange(weights.shape[1]) % 2)
    return q, k, weights.abs() * sign[:, None]


def _low_mantissa(q: Tensor, k: Tensor, weights: Tensor, generator: torch.Generator) -> _Drawn:
    """Scores 2^20 + j with j below 101: equal but for the last bits of a float32 mantissa."""
    q, k, weights = (torch.zeros_like(t) for t in (q, k, weights))
    q[..., 0, 0], k[..., 0] = 1024, 1024
    q[..., 0, 1], k[..., 1] = 1, (torch.arange(k.shape[1]) * 37 % 101).double()
    weights[..., 0] = 1
    return q, k, weights


def _stripes(q: Tensor, k: Tensor, weights: Tensor, generator: torch.Generator) -> _Drawn:
    """Long positive sums, close to each other, but for every 32nd key, which is zero."""
    q, k, weights = _counting(q, k, weights, generator)
    k[:, ::32] = 0
    return q, k, weights


def _outliers(q: Tensor, k: Tensor, weights: Tensor, _: torch.Generator) -> _Drawn:
    """Scores 2^20 + j, each j below N once, too close to each other to be told apart beside three of 2^26.

    Four dims make 2^26, so that the gradients stay in the range of float16.
    """
    q, k, weights = (torch.zeros_like(t) for t in (q, k, weights))
    keys = torch.arange(k.shape[1])
    mixed = keys * 7919 % max(k.shape[1], 1)
    q[..., 0, 0], k[..., 0] = 1024, 1024
    q[..., 0, 1], k[..., 1] = 128, mixed // 128
    q[..., 0, 2], k[..., 2] = 1, mixed % 128
    far = keys % max(k.shape[1] // 3, 1) == 1
    k[:, far] = 0
    q[..., 0, 3:7], k[..., 3:7] = 2**12, 2**12 * far[:, None]
    weights[..., 0] = 1
    return q, k, weights


def _negative(q: Tensor, k: Tensor, weights: Tensor, _: torch.Generator) -> _Drawn:
    return q, k, -weights.abs()


def _scaled(q_factor: float, k_factor: float, weights_factor: float) -> _Shaper:
    def scale(q: Tensor, k: Tensor, weights: Tensor, _: torch.Generator) -> _Drawn:
        return q * q_factor, k * k_factor, weights * weights_factor

    return scale


def _planted(tensor: str, value: float, *, weight_sign: int = 0) -> _Shaper:
    """One element replaced: of the first key, of the last query, or of the last query's weights."""

    def plant(q: Tensor, k: Tensor, weights: Tensor, _: torch.Generator) -> _Drawn:
        target = {"k": k[-1:, :1, 3:4], "q": q[-1:, -1:, -1:, 5:6], "weights": weights[:1, -1:, :1]}[tensor]
        target.fill_(value)
        return q, k, weights.abs() * weight_sign if weight_sign else weights

    return plant


_SHAPERS: dict[Values, _Shaper] = {
    "integers": _integers,
    "counting": _counting,
    "ties": _ties,
    "equal": _equal,
    "ends": _ends,
    "plateaus": _plateaus,
    "low mantissa": _low_mantissa,
    "stripes": _stripes,
    "outliers": _outliers,
    "negative weights": _negative,
    "huge": _scaled(2.0**7, 2.0**7, 4),
    "tiny": _scaled(2.0**-9, 2.0**-9, 2.0**-10),
    "enormous": _scaled(2.0**45, 2.0**45, 2.0**10),
    "minute": _scaled(2.0**-40, 2.0**-40, 2.0**-20),
    "NaN in a key": _planted("k", nan),
    "NaN in a query": _planted("q", nan),
    "NaN in a weight": _planted("weights", nan),
    "inf in a key": _planted("k", inf),
    "inf below zero": _planted("k", inf, weight_sign=-1),
}


def _given_indices(case: Case, mask: Mask, generator: torch.Generator) -> Tensor | None:
    """Indices int32 [B,S,C] for replay: of any keys, those that the mask hides and other documents' included.

    Key 0 is never named among void indices: it is where a kernel lands that forgets to mask, and in some cases it
    holds inf.
    """
    if case.given == "none":
        return None
    columns = min(case.given_columns, case.keys) if case.given == "replay" else min(case.topk, case.given_columns)
    shape = (case.batch, case.queries, columns)
    noise = torch.rand((case.batch, case.queries, max(case.keys, columns)), generator=generator)
    if case.given == "replay":
        return mask.to_indices(noise.argsort(-1)[..., :columns])
    if case.given == "duplicates":  # of the first keys that the query sees, if it sees any
        return mask.to_indices(mask.starts[..., None] + torch.randint(0, min(3, case.keys), shape, generator=generator))
    wide = mask.to_indices(torch.randint(1, max(case.keys, 2), shape, generator=generator))
    void = torch.tensor([-1, case.keys, -7, case.keys + 1000, 2**31 - 1, -(2**31)], dtype=torch.int32)
    return torch.where(torch.rand(shape, generator=generator) < 0.4, void[wide % len(void)], wide)


def told(mask: Mask, view: View, device: str) -> dict[str, Tensor | int]:
    """The arguments that tell `mask`; ranges by sample may be expanded over the batch, any tensor strided."""

    def arranged(value: Tensor) -> Tensor:
        if view == "expanded" and value.ndim == 2:
            return _embedded(value[0]).expand(value.shape)
        return _sliced(value, slice(1, None, 2), 2 * value.shape[-1]) if view == "strided" else _embedded(value)

    arguments = mask.arguments.items()
    return {name: arranged(value.to(device)) if isinstance(value, Tensor) else value for name, value in arguments}


def _as_view(tensor: Tensor, view: View, batch_axis: int | None) -> Tensor:
    """The same values in the memory layout of `view`, surrounded by poison."""
    if view == "transposed":
        return _embedded(tensor.transpose(0, 1)).transpose(0, 1)
    if view == "expanded" and batch_axis is not None:
        return _embedded(tensor.narrow(batch_axis, 0, min(tensor.shape[batch_axis], 1))).expand(tensor.shape)
    if view == "fused":
        return _sliced(tensor, slice(3, 3 + tensor.shape[-1]), tensor.shape[-1] + 7)
    if view == "strided":
        return _sliced(tensor, slice(1, None, 2), 2 * tensor.shape[-1])
    return _embedded(tensor)


def _poison(shape: tuple[int, ...], like: Tensor) -> Tensor:
    value = nan if like.is_floating_point() else 2**30
    return torch.full(shape, value, dtype=like.dtype, device=like.device)


def _embedded(tensor: Tensor) -> Tensor:
    """A contiguous copy in the middle of a poisoned buffer."""
    buffer = _poison((tensor.numel() + 2 * GUARD,), tensor)
    return buffer[GUARD : GUARD + tensor.numel()].view(tensor.shape).copy_(tensor)


def _sliced(tensor: Tensor, columns: slice, width: int) -> Tensor:
    """A copy in some columns of a wider poisoned tensor."""
    return _poison((*tensor.shape[:-1], width), tensor)[..., columns].copy_(tensor)
