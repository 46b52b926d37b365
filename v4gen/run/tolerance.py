"""How far a right kernel may be from the oracle, derived element by element.

Model of the arithmetic. Inputs are bf16 or fp16, so a product of two is exact in float32. A float32 sum of n terms,
in any order, is off by at most gamma(n) = n u / (1 - n u) times the sum of the terms' magnitudes, u being the
accumulator's unit roundoff (Higham, Accuracy and Stability, section 4.2). Each term may besides be flushed below
2^-126. Where all terms are integers and their magnitudes stay under 2^24 no partial sum rounds: the bound is 0.

    scores   every dot product is off by e = gamma(D) sum|q||k|; relu is 1-Lipschitz, so the head sum is off by
             sum|w| e, plus gamma(H+2) of its own terms (product with w, weight scale, H adds).
    dq, dk   g*w may be rounded to the matrix unit's input type; that rounding is known exactly and its magnitude is
             carried through. Then gamma(C+3) for dq, and for dk H times the key's columns + 3 (3: the scale constant,
             its product with w, the product with g). Last, half an ulp where the result is rounded to bf16 or fp16.
    dw       float32 throughout: sum|g| e, plus gamma(C+2) of the terms.
    relu'    where |q.k| <= e the gate may be either way: the whole |g w k| (or |g w q|) of that one term is allowed,
             and of no other.

A bound that is not finite (a NaN or inf reaches the element) leaves the element unconstrained; whether scores carry
the right NaN and inf is a check of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from v4gen.run.oracle import Gradients, Problem, gather_columns, is_integral

SMALLEST_NORMAL = 2.0**-126
EXACT_INTEGERS = 2.0**24

SIGNIFICANT_BITS = {torch.bfloat16: 8, torch.float16: 11}
LEAST_EXPONENT = {torch.bfloat16: -125, torch.float16: -13}
"""Exponent of the smallest normal number, its mantissa read as 0.5 <= m < 1."""


@dataclass(frozen=True)
class Arithmetic:
    """What rounds: `accumulator` is the unit roundoff of sums, `operand` the input type of the matrix unit."""

    accumulator: float
    operand: torch.dtype

    @classmethod
    def of(cls, device: str, operand: torch.dtype) -> Arithmetic:
        """IEEE float32 sums on a CPU; tensor cores truncate aligned addends, which costs up to two bits more."""
        return cls(2.0**-24 if device == "cpu" else 2.0**-22, operand)

    def summed(self, magnitude: Tensor, terms: int | Tensor, integral: bool) -> Tensor:
        """Error of a sum of `terms` terms whose magnitudes add up to `magnitude`."""
        relative = terms * self.accumulator
        bound = magnitude * (relative / (1 - relative)) + terms * SMALLEST_NORMAL
        exact = magnitude == 0
        if integral:
            exact = exact | (magnitude < EXACT_INTEGERS)
        return bound.masked_fill(exact, 0)

    def rounded_operand(self, product: Tensor) -> Tensor:
        """Error of rounding each |g w| of `product` [T,H,C] to the operand type.

        float16 is scaled by a power of two per query first, so terms far below the query's largest become subnormal.
        """
        mantissa, exponent = torch.frexp(product)
        error = torch.ldexp((mantissa.to(self.operand).double() - mantissa).abs(), exponent)
        if self.operand == torch.float16 and product.numel():
            peak = product.amax(dim=(1, 2), keepdim=True)
            error = error + (product < peak * 2.0**-14) * (peak * 2.0**-25)
        return error


def score_bounds(problem: Problem, arithmetic: Arithmetic) -> Tensor:
    """Bound of each element of the score matrix: float64 [B,S,N]."""
    result = torch.zeros((problem.q.shape[0], problem.queries, problem.keys), dtype=torch.float64)
    heads, dim = problem.q.shape[2:]
    exact_dots = is_integral(problem.q) and is_integral(problem.k)
    exact_heads = exact_dots and is_integral(problem.scaled_weights)
    for sample, rows in problem.blocks(problem.keys):
        q, k = problem.q[sample, rows], problem.k[sample]
        weights = problem.scaled_weights[sample, rows].abs()
        dots = q @ k.T
        error = arithmetic.summed(q.abs() @ k.T.abs(), dim, exact_dots)
        error = error.masked_fill(dots <= -error, 0)
        terms = torch.einsum("th,thn->tn", weights, dots.clamp(min=0) + error)
        carried = torch.einsum("th,thn->tn", weights, error)
        result[sample, rows] = carried + arithmetic.summed(terms, heads + 2, exact_heads)
    return result


def gradient_bounds(problem: Problem, indices: Tensor, grad: Tensor, arithmetic: Arithmetic) -> Gradients:
    """Bounds of the float32 gradients at the given indices, before their last rounding to an output dtype."""
    bounds = Gradients.zeros(problem)
    magnitudes = torch.zeros_like(problem.k)
    adds = torch.zeros(problem.k.shape[:2], dtype=torch.float64)
    heads, dim = problem.q.shape[2:]
    columns = indices.shape[-1]
    exact_dots = is_integral(problem.q) and is_integral(problem.k)
    exact = exact_dots and is_integral(problem.scaled_weights) and is_integral(grad.nan_to_num(0, 0, 0))
    for block in gather_columns(problem, indices, grad):
        at, to = (block.sample, block.rows), block.indices.flatten()
        q, keys, upstream = block.q.abs(), block.keys.abs(), block.grad.abs()[:, None, :]
        dots = block.q @ block.keys.transpose(1, 2)
        error = arithmetic.summed(q @ keys.transpose(1, 2), dim, exact_dots)
        undecided = ~(dots.abs() > error) & (error != 0)
        open_ = (dots > 0) | undecided
        product = (block.weights.abs()[:, :, None] * upstream) * open_
        slack = arithmetic.rounded_operand(product) + product * undecided
        bounds.dq[at] = slack @ keys + arithmetic.summed(product @ keys, columns + 3, exact)
        for into, of_terms in ((bounds.dk, slack), (magnitudes, product)):
            by_column = (of_terms.transpose(1, 2) @ q).masked_fill(~block.valid[..., None], 0)
            into[block.sample].index_add_(0, to, by_column.flatten(0, 1))
        adds[block.sample].index_add_(0, to, heads * block.valid.flatten().double())
        terms = (upstream * (dots.clamp(min=0) + error * open_)).sum(-1)
        bounds.dw[at] = (upstream * error * open_).sum(-1) + arithmetic.summed(terms, columns + 2, exact)
    bounds.dk.add_(arithmetic.summed(magnitudes, adds[..., None] + 3, exact))
    return Gradients(bounds.dq, bounds.dk, bounds.dw * problem.weight_scale)


def half_ulp(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Largest error of rounding numbers of this size to `dtype`."""
    exponent = torch.frexp(values).exponent.clamp(min=LEAST_EXPONENT[dtype])
    return torch.ldexp(torch.ones_like(values), exponent - SIGNIFICANT_BITS[dtype] - 1)


def after_rounding(exact: Tensor, bound: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Reference and bound of a float32 result once it has been rounded to `dtype`.

    A result that was exact before rounds in one known way, and must be just that.
    """
    if dtype == torch.float32:
        return exact, bound
    certain = bound == 0
    reference = torch.where(certain, exact.to(dtype).double(), exact)
    return reference, torch.where(certain, 0, bound + half_ulp(exact.abs() + bound, dtype))
