"""The judge: the operator in float64 (or, for integer inputs, in int64), written to be read and not to be fast.

It shares no code with the kernels: gathered dot products and one sort. Both number types run through the same lines,
since nothing here depends on rounding. Tensors are batch first; the memory used is bounded by walking over queries.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

BLOCK_ELEMENTS = 1 << 21
"""Elements of the largest intermediate of one block of queries."""


@dataclass(frozen=True)
class Problem:
    """One instance of the operator.

    `q` [B,S,H,D], `k` [B,N,D] and `weights` [B,S,H] share one dtype: float64, or int64 for the exact path. `visible`
    bool [M,S,N] is the mask, M being B or 1.
    """

    q: Tensor
    k: Tensor
    weights: Tensor
    visible: Tensor
    weight_scale: float = 1.0

    def __post_init__(self) -> None:
        if {self.q.dtype, self.k.dtype, self.weights.dtype} not in ({torch.float64}, {torch.int64}):
            raise TypeError("the oracle computes in float64 or int64 only")
        if self.q.dtype == torch.int64 and self.weight_scale != 1:
            raise ValueError("the exact path has no weight scale")

    @property
    def queries(self) -> int:
        """S."""
        return self.q.shape[1]

    @property
    def keys(self) -> int:
        """N."""
        return self.k.shape[1]

    @property
    def scaled_weights(self) -> Tensor:
        """The weights [B,S,H] as the scores see them."""
        return self.weights if self.weight_scale == 1 else self.weights * self.weight_scale

    def as_integers(self) -> Problem | None:
        """The same problem in int64, or None where an input is no small integer."""
        if self.weight_scale != 1 or not all(is_integral(t) for t in (self.q, self.k, self.weights)):
            return None
        q, k, weights = (t.to(torch.int64) for t in (self.q, self.k, self.weights))
        return Problem(q, k, weights, self.visible)

    def blocks(self, columns: int) -> Iterator[tuple[int, slice]]:
        """Sample and query range of each block, small enough for [queries, H, columns] intermediates."""
        heads, dim = self.q.shape[2:]
        step = max(1, BLOCK_ELEMENTS // max(1, columns * max(heads, dim)))
        for sample in range(self.q.shape[0]):
            for start in range(0, self.queries, step):
                yield sample, slice(start, start + step)


@dataclass(frozen=True)
class Gradients:
    """A value for each element of the inputs: dq [B,S,H,D], dk [B,N,D], dw [B,S,H]."""

    dq: Tensor
    dk: Tensor
    dw: Tensor

    @classmethod
    def zeros(cls, problem: Problem) -> Gradients:
        """Nothing accumulated yet."""
        inputs = (problem.q, problem.k, problem.weights)
        return cls(*(torch.zeros_like(t, memory_format=torch.contiguous_format) for t in inputs))


@dataclass(frozen=True)
class Columns:
    """A block of queries with the keys at their indices gathered; void columns hold zeros.

    `q` [T,H,D], `weights` [T,H], `keys` [T,C,D], `valid` bool [T,C], `indices` [T,C] (0 where void), `grad` [T,C]; of
    the columns those that some query of the block has a key in.
    """

    sample: int
    rows: slice
    q: Tensor
    weights: Tensor
    keys: Tensor
    valid: Tensor
    indices: Tensor
    grad: Tensor


def is_integral(values: Tensor) -> bool:
    """Whether every element is an integer that float32 holds exactly."""
    return bool(((values == values.round()) & (values.abs() < 2**24)).all()) if values.is_floating_point() else True


def scores(problem: Problem) -> Tensor:
    """Score of each query with each key: float64 [B,S,N], -inf outside the mask."""
    batch = problem.q.shape[0]
    result = torch.zeros((batch, problem.queries, problem.keys), dtype=torch.float64)
    for sample, rows in problem.blocks(problem.keys):
        dots = problem.q[sample, rows] @ problem.k[sample].T
        weighted = torch.einsum("th,thn->tn", problem.scaled_weights[sample, rows], dots.clamp(min=0))
        result[sample, rows] = weighted.to(torch.float64)
    return result.masked_fill(~problem.visible, -inf)


def select(matrix: Tensor, visible: Tensor, *, topk: int, width: str, order: str) -> tuple[Tensor, Tensor]:
    """The `topk` best visible keys of each row of `matrix` [B,S,N], whatever its float dtype.

    Better means: NaN before everything, then the higher score, then the lower index; -0.0 equals +0.0. Returns scores
    and int32 indices [B,S,W]; W is `topk`, or min(topk, N) where `width` is "min". Visible keys come first, in rank
    order or (`order` "index") in key order; the columns left over hold -inf and -1.
    """
    keys = matrix.shape[-1]
    hidden = ~visible.expand(matrix.shape)
    ranked = torch.sort(matrix, dim=-1, descending=True, stable=True).indices
    ranked = ranked.gather(-1, hidden.gather(-1, ranked).to(torch.int8).sort(dim=-1, stable=True).indices)
    chosen = ranked[..., : min(topk, keys)]
    if order == "index":
        chosen = torch.where(hidden.gather(-1, chosen), keys, chosen).sort(dim=-1).values.clamp(max=max(keys - 1, 0))
    void = torch.arange(chosen.shape[-1]) >= visible.sum(-1, keepdim=True)
    indices = chosen.masked_fill(void, -1).to(torch.int32)
    values = matrix.gather(-1, chosen).masked_fill(void, -inf)
    missing = 0 if width == "min" else topk - indices.shape[-1]
    pad = torch.nn.functional.pad
    return pad(values, (0, missing), value=-inf), pad(indices, (0, missing), value=-1)


def is_void(indices: Tensor, visible: Tensor) -> Tensor:
    """Which of the given indices [B,S,C] name no key that their query may see: bool [B,S,C]."""
    outside = (indices < 0) | (indices >= visible.shape[-1])
    if visible.shape[-1] == 0:
        return outside
    reachable = visible.expand(indices.shape[0], -1, -1).gather(-1, indices.masked_fill(outside, 0).long())
    return outside | ~reachable


def replay(matrix: Tensor, visible: Tensor, indices: Tensor) -> Tensor:
    """Scores at the given indices [B,S,C], -inf where an index is void."""
    if matrix.shape[-1] == 0:
        return matrix.new_full(indices.shape, -inf)
    void = is_void(indices, visible)
    return matrix.gather(-1, indices.masked_fill(void, 0).long()).masked_fill(void, -inf)


def gather_columns(problem: Problem, indices: Tensor, grad: Tensor) -> Iterator[Columns]:
    """Walk over blocks of queries with their columns; nothing is left of a void column, NaN gradients included."""
    void = is_void(indices, problem.visible)
    kept = indices.masked_fill(void, 0).long()
    upstream = grad.to(problem.q.dtype).masked_fill(void, 0)
    if problem.keys == 0:
        return
    for sample, rows in problem.blocks(indices.shape[-1]):
        valid = ~void[sample, rows]
        used = valid.any(0)
        valid, at = valid[:, used], kept[sample, rows][:, used]
        yield Columns(
            sample,
            rows,
            q=problem.q[sample, rows],
            weights=problem.scaled_weights[sample, rows],
            keys=problem.k[sample][at].masked_fill(~valid[..., None], 0),
            valid=valid,
            indices=at,
            grad=upstream[sample, rows][:, used],
        )


def gradients(problem: Problem, indices: Tensor, grad: Tensor) -> Gradients:
    """Gradients of sum(grad * selected scores), the indices held constant.

    `indices` int [B,S,C], `grad` [B,S,C]. The closed formula: a head passes gradient only where its dot product is
    above zero, duplicates add up, and a void column adds nothing whatever its gradient holds.
    """
    result = Gradients.zeros(problem)
    for block in gather_columns(problem, indices, grad):
        dots = block.q @ block.keys.transpose(1, 2)
        passed = torch.where(dots > 0, block.weights[:, :, None] * block.grad[:, None, :], 0)
        result.dq[block.sample, block.rows] = passed @ block.keys
        # Selected away, not multiplied by a gradient of zero: the product of a void column may be NaN.
        flowing = torch.where(block.valid[:, None, :], block.grad[:, None, :] * dots.clamp(min=0), 0)
        result.dw[block.sample, block.rows] = flowing.sum(-1)
        # A void column's is selected away as well: it is nothing times q, NaN where q is not finite.
        by_column = (passed.transpose(1, 2) @ block.q).masked_fill(~block.valid[..., None], 0)
        result.dk[block.sample].index_add_(0, block.indices.flatten(), by_column.flatten(0, 1))
    if problem.weight_scale != 1:
        result.dw.mul_(problem.weight_scale)
    return result
