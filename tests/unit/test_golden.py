"""The oracle gives every number of the golden tables; a mistake on purpose gives the number that stands for it."""

import pytest
import torch
from torch import Tensor

from v4gen.run import oracle
from v4gen.run.golden import GOLDEN_TABLES, Golden, golden_gradient, golden_inputs
from v4gen.run.mask import between, causal
from v4gen.run.oracle import Gradients, Problem

pytestmark = pytest.mark.parametrize("table", GOLDEN_TABLES, ids=lambda table: table.name)


def problem_of(table: Golden, query_offset: int = 0) -> Problem:
    shapes = (
        (table.batch, table.queries, table.heads, table.dim),
        (table.batch, table.keys, table.dim),
        (table.batch, table.queries, table.heads),
    )
    q, k, weights = (
        torch.tensor(numbers).reshape(shape) for numbers, shape in zip(golden_inputs(table), shapes, strict=True)
    )
    return Problem(q, k, weights, between(*causal(table.queries, table.keys, table.ratio, query_offset), table.keys))


def selection(table: Golden, problem: Problem) -> tuple[Tensor, Tensor]:
    return oracle.select(oracle.scores(problem), problem.visible, topk=table.topk, width="min", order="score")


def upstream(indices: Tensor) -> Tensor:
    return torch.tensor(
        [[[golden_gradient(t, key) for key in row] for t, row in enumerate(sample)] for sample in indices.tolist()]
    )


def as_floats(problem: Problem) -> Problem:
    return Problem(problem.q.double(), problem.k.double(), problem.weights.double(), problem.visible)


def seen(problem: Problem) -> Tensor:
    return oracle.scores(problem)[problem.visible.expand(problem.q.shape[0], -1, -1)]


def sums(gradients: Gradients) -> list[int]:
    return [int(total) for t in (gradients.dq, gradients.dk, gradients.dw) for total in (t.sum(), t.abs().sum())]


@pytest.mark.parametrize("exact", [True, False], ids=["int64", "float64"])
def test_scores_and_selection(table: Golden, exact: bool) -> None:
    problem = problem_of(table) if exact else as_floats(problem_of(table))
    scores, indices = selection(table, problem)
    chosen = indices >= 0
    assert table.keys == table.queries // table.ratio
    assert seen(problem).numel() == table.visible_pairs
    assert seen(problem).sum() == table.sum_scores
    assert seen(problem).square().sum() == table.sum_squared_scores
    assert chosen.sum() == table.selected
    assert scores[chosen].sum() == table.sum_selected
    assert indices[chosen].sum() == table.sum_indices
    assert tuple(indices[-1, -1].tolist()) == table.last_indices
    assert tuple(scores[-1, -1].tolist()) == table.last_scores


@pytest.mark.parametrize("exact", [True, False], ids=["int64", "float64"])
def test_gradients(table: Golden, exact: bool) -> None:
    problem = problem_of(table) if exact else as_floats(problem_of(table))
    _, indices = selection(table, problem)
    assert sums(oracle.gradients(problem, indices, upstream(indices))) == [
        table.sum_dq,
        table.sum_abs_dq,
        table.sum_dk,
        table.sum_abs_dk,
        table.sum_dw,
        table.sum_abs_dw,
    ]


def test_a_bound_one_token_late_is_told_apart(table: Golden) -> None:
    late = problem_of(table, query_offset=-1)  # t // r instead of (t + 1) // r
    assert seen(late).sum() == table.wrong_bound_sum_scores


def test_a_missing_relu_is_told_apart(table: Golden) -> None:
    problem = problem_of(table)
    linear = torch.einsum("bth,bthd,bnd->btn", problem.weights, problem.q, problem.k)
    assert linear[problem.visible.expand_as(linear)].sum() == table.wrong_relu_sum_scores


def test_an_open_gate_at_zero_is_told_apart(table: Golden) -> None:
    problem = problem_of(table)
    _, indices = selection(table, problem)
    wrong = 0
    for block in oracle.gather_columns(problem, indices, upstream(indices)):
        gate = block.q @ block.keys.transpose(1, 2) >= 0
        passed = gate * block.weights[:, :, None] * block.grad[:, None, :]
        wrong += int((passed @ block.keys).abs().sum())
    assert wrong == table.wrong_mask_sum_abs_dq
