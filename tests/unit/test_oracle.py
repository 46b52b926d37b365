"""The oracle against second derivations: Python's sort, autograd, and integers against floats."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from v4gen.run import oracle
from v4gen.run.mask import between, causal
from v4gen.run.oracle import Problem

SCORES = st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 1e-40, 2.0])


def draw(batch: int, queries: int, keys: int, ratio: int = 2, offset: int = 0, scale: float = 1.0) -> Problem:
    generator = torch.Generator().manual_seed(7)
    shapes = ((batch, queries, 3, 16), (batch, keys, 16), (batch, queries, 3))
    q, k, weights = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    return Problem(q, k, weights, between(*causal(queries, keys, ratio, offset), keys), scale)


def best_first(row: list[float], visible: int) -> list[int]:
    """The order in Python: NaN, then higher scores, then lower indices."""

    def rank(index: int) -> tuple[bool, float, int]:
        score = row[index]
        return (not math.isnan(score), 0.0 if math.isnan(score) else -score, index)

    return sorted(range(visible), key=rank)


@settings(deadline=None)
@given(st.lists(SCORES, max_size=9), st.integers(0, 9), st.integers(1, 12), st.booleans(), st.booleans())
def test_selection_is_pythons_sort(row: list[float], seen: int, topk: int, narrow: bool, by_index: bool) -> None:
    seen = min(seen, len(row))
    matrix = torch.tensor([[row]], dtype=torch.float32).reshape(1, 1, len(row))
    visible = (torch.arange(len(row)) < seen)[None]
    scores, indices = oracle.select(
        matrix, visible, topk=topk, width="min" if narrow else "topk", order="index" if by_index else "score"
    )
    chosen = best_first(row, seen)[:topk]
    chosen = sorted(chosen) if by_index else chosen
    width = min(topk, len(row)) if narrow else topk
    void = width - len(chosen)
    assert indices.dtype == torch.int32
    assert indices[0, 0].tolist() == chosen + [-1] * void
    expected = torch.tensor([row[i] for i in chosen] + [-math.inf] * void, dtype=torch.float32)
    assert torch.equal(scores[0, 0].nan_to_num(nan=9), expected.nan_to_num(nan=9))


def test_a_visible_minus_infinity_comes_before_a_column_without_key() -> None:
    matrix = torch.tensor([[[-math.inf, 1.0, -math.inf]]])
    _, indices = oracle.select(matrix, torch.tensor([[True, True, False]]), topk=3, width="min", order="score")
    assert indices.tolist() == [[[1, 0, -1]]]


def differentiable_scores(problem: Problem, q: Tensor, k: Tensor, weights: Tensor) -> Tensor:
    """The score matrix, written so that autograd can follow."""
    dots = torch.einsum("bthd,bnd->bthn", q, k).relu()
    return problem.weight_scale * torch.einsum("bth,bthn->btn", weights, dots)


@pytest.mark.parametrize("scale", [1.0, 0.3])
def test_gradients_are_autograds(scale: float) -> None:
    problem = draw(2, 11, 7, offset=3, scale=scale)
    indices = torch.randint(-2, 9, (2, 11, 6), generator=torch.Generator().manual_seed(1), dtype=torch.int32)
    void = oracle.is_void(indices, problem.visible)
    grad = torch.randn(indices.shape, dtype=torch.float64)
    assert void.any()
    leaves = [t.clone().requires_grad_() for t in (problem.q, problem.k, problem.weights)]
    matrix = differentiable_scores(problem, leaves[0], leaves[1], leaves[2])
    selected = matrix.gather(-1, indices.masked_fill(void, 0).long())
    expected = torch.autograd.grad((selected * grad)[~void].sum(), leaves)
    found = oracle.gradients(problem, indices, grad.masked_fill(void, math.nan))
    for actual, autograd in zip((found.dq, found.dk, found.dw), expected, strict=True):
        torch.testing.assert_close(actual, autograd)


def test_each_sample_may_have_a_mask_of_its_own() -> None:
    problem = draw(2, 4, 5, offset=20)
    visible = torch.rand(2, 4, 5, generator=torch.Generator().manual_seed(2)) < 0.5
    masked = Problem(problem.q, problem.k, problem.weights, visible)
    assert torch.equal(oracle.scores(masked).isinf(), ~visible)
    indices = torch.arange(5, dtype=torch.int32).expand(2, 4, 5)
    assert torch.equal(oracle.is_void(indices, visible), ~visible)
    grad = torch.full(indices.shape, math.nan).masked_fill(visible, 1)
    found = oracle.gradients(masked, indices, grad)
    expected = oracle.gradients(problem, indices, torch.where(visible, 1.0, 0.0))
    torch.testing.assert_close((found.dq, found.dk, found.dw), (expected.dq, expected.dk, expected.dw))


def test_duplicates_add_up() -> None:
    problem = draw(1, 4, 5, offset=20)
    one, two = torch.full((1, 4, 1), 3), torch.full((1, 4, 2), 3)
    single = oracle.gradients(problem, one, torch.full((1, 4, 1), 2.0))
    double = oracle.gradients(problem, two, torch.ones(1, 4, 2))
    torch.testing.assert_close(single.dk, double.dk)


def test_integers_and_floats_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = draw(2, 30, 9)
    floats = Problem((problem.q * 3).round(), (problem.k * 3).round(), (problem.weights * 3).round(), problem.visible)
    integers = floats.as_integers()
    assert integers is not None
    assert torch.equal(oracle.scores(integers), oracle.scores(floats))
    indices = torch.randint(-1, 9, (2, 30, 4), dtype=torch.int32)
    grad = torch.randint(-3, 4, indices.shape)
    whole = oracle.gradients(floats, indices, grad.double())
    monkeypatch.setattr(oracle, "BLOCK_ELEMENTS", 200)  # many small blocks
    exact = oracle.gradients(integers, indices, grad)
    for actual, expected in zip((exact.dq, exact.dk, exact.dw), (whole.dq, whole.dk, whole.dw), strict=True):
        assert torch.equal(actual.double(), expected)
    assert draw(1, 2, 2).as_integers() is None


def test_nan_and_inf_reach_only_the_scores_that_depend_on_them() -> None:
    problem = draw(1, 6, 3, ratio=1)
    problem.k[0, 1, 0] = math.nan
    scores = oracle.scores(problem)
    assert torch.equal(scores.isnan(), (torch.arange(3) == 1) & problem.visible)


@pytest.mark.parametrize("shape", [(0, 3, 2), (2, 0, 3), (2, 4, 0)], ids=["B=0", "S=0", "N=0"])
def test_empty_problems(shape: tuple[int, int, int]) -> None:
    batch, queries, keys = shape
    problem = draw(*shape)
    matrix = oracle.scores(problem)
    assert matrix.shape == (batch, queries, keys)
    _, indices = oracle.select(matrix, problem.visible, topk=3, width="topk", order="score")
    assert indices.shape == (batch, queries, 3)
    assert not oracle.gradients(problem, indices, torch.ones(indices.shape)).dq.any()


def test_a_problem_in_another_precision_is_refused() -> None:
    problem = draw(1, 2, 2)
    with pytest.raises(TypeError, match="float64"):
        Problem(problem.q.float(), problem.k, problem.weights, problem.visible)
    with pytest.raises(ValueError, match="weight scale"):
        Problem(problem.q.long(), problem.k.long(), problem.weights.long(), problem.visible, weight_scale=0.5)
