"""The bounds hold for float32 arithmetic in any order, are zero where nothing rounds, and are no wider than needed."""

import pytest
import torch
from torch import Tensor

from v4gen.run import oracle
from v4gen.run.mask import between, causal
from v4gen.run.oracle import Problem
from v4gen.run.tolerance import Arithmetic, after_rounding, gradient_bounds, half_ulp, score_bounds

CPU = Arithmetic.of("cpu", torch.bfloat16)


def draw(dtype: torch.dtype = torch.bfloat16, seed: int = 0) -> Problem:
    generator = torch.Generator().manual_seed(seed)
    shapes = ((1, 17, 4, 32), (1, 9, 32), (1, 17, 4))
    q, k, weights = (torch.randn(shape, generator=generator).to(dtype).double() for shape in shapes)
    return Problem(q, k, weights, between(*causal(17, 9, ratio=1, offset=0), 9))


def float32_scores(problem: Problem, order: Tensor) -> Tensor:
    """Every sum in float32, one term after another, over the dims in the given order."""
    q, k, weights = (t.float() for t in (problem.q, problem.k, problem.weights))
    dots = torch.zeros(1, q.shape[1], q.shape[2], k.shape[1])
    for d in order.tolist():
        dots = dots + q[..., d, None] * k[:, None, None, :, d]
    result = torch.zeros(1, q.shape[1], k.shape[1])
    for h in range(q.shape[2]):
        result = result + weights[..., h, None] * dots[:, :, h].clamp(min=0)
    return result


@pytest.mark.parametrize("seed", range(3))
def test_scores_in_float32_are_within(seed: int) -> None:
    problem = draw(seed=seed)
    order = torch.randperm(32, generator=torch.Generator().manual_seed(seed))
    error = (float32_scores(problem, order).double() - oracle.scores(problem)).abs()
    bound = score_bounds(problem, CPU)
    visible = problem.visible
    assert (error[visible] <= bound[visible]).all()
    assert (error[visible] > bound[visible] / 5000).any()


@pytest.mark.parametrize("operand", [torch.bfloat16, torch.float16])
def test_rounding_the_operand_is_within(operand: torch.dtype) -> None:
    problem = draw(operand)
    indices = torch.arange(9, dtype=torch.int32).expand(1, 17, 9)
    grad = torch.randn(indices.shape, generator=torch.Generator().manual_seed(3))
    bounds = gradient_bounds(problem, indices, grad, Arithmetic.of("cpu", operand))
    exact = oracle.gradients(problem, indices, grad)
    rounded = torch.zeros_like(exact.dq)
    for block in oracle.gather_columns(problem, indices, grad):
        gate = block.q @ block.keys.transpose(1, 2) > 0
        product = (block.weights[:, :, None] * block.grad[:, None, :]).float().to(operand).double() * gate
        rounded[block.sample, block.rows] = product @ block.keys
    error = (rounded - exact.dq).abs()
    assert error.max() > 0
    assert (error <= bounds.dq).all()


def test_integers_leave_no_room() -> None:
    floats = draw()
    problem = Problem((floats.q * 2).round(), (floats.k * 2).round(), (floats.weights * 2).round(), floats.visible)
    assert not score_bounds(problem, CPU).any()
    indices = torch.arange(9, dtype=torch.int32).expand(1, 17, 9)
    bounds = gradient_bounds(problem, indices, torch.ones(indices.shape), CPU)
    assert not bounds.dq.any()
    assert not bounds.dk.any()
    assert not bounds.dw.any()


def test_only_an_undecided_gate_is_given_room() -> None:
    """A dot product that cancels to nearly nothing may pass its gradient or not; its neighbours may not."""
    q = torch.zeros(1, 1, 1, 16, dtype=torch.float64)
    q[..., 0], q[..., 1] = 1.0, -1.0
    k = torch.zeros(1, 2, 16, dtype=torch.float64)
    k[0, 0, :2] = torch.tensor([1 + 2.0**-7, 1 + 2.0**-7])
    k[0, 0, 2:] = 0.5  # not read by q: gradient to q and none to the dot product
    k[0, 1, :2] = torch.tensor([1.5, 1.0])
    weights = torch.full((1, 1, 1), 0.7, dtype=torch.float64)
    problem = Problem(q, k, weights, torch.ones(1, 1, 2, dtype=torch.bool))
    for key, room in ((0, True), (1, False)):
        indices = torch.full((1, 1, 1), key, dtype=torch.int32)
        bounds = gradient_bounds(problem, indices, torch.ones(1, 1, 1), CPU)
        assert bool(bounds.dq[..., 0] > 0.5) is room


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_an_ulp(dtype: torch.dtype) -> None:
    bits = torch.arange(1, 0x7000, dtype=torch.int16)
    values = bits.view(dtype).double()
    gaps = values[1:] - values[:-1]
    between = values[:-1] + gaps / 3
    assert (half_ulp(between, dtype) == gaps / 2).all()


def test_an_exact_result_rounds_in_one_way() -> None:
    exact = torch.tensor([256.0, 257.0, 1000.0], dtype=torch.float64)
    zero = torch.zeros(3, dtype=torch.float64)
    reference, bound = after_rounding(exact, zero, torch.bfloat16)
    assert reference.tolist() == [256.0, 256.0, 1000.0]
    assert not bound.any()
    assert after_rounding(exact, zero, torch.float32) == (exact, zero)
    _, bound = after_rounding(exact, zero + 0.25, torch.bfloat16)
    assert bound.tolist() == [1.25, 1.25, 2.25]


def test_tensor_cores_are_given_two_bits() -> None:
    assert Arithmetic.of("cuda", torch.bfloat16).accumulator == 4 * CPU.accumulator
