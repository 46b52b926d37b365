"""A rival that does other work is found out, whatever is wrong with it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from v4gen.run.agreement import disagreement
from v4gen.run.answers import Answers
from v4gen.run.plain import torch_tasks

TASKS = ["scores", "select", "forward", "backward"]


def test_own_results_agree(answers: Answers) -> None:
    found = {"scores": answers.matrix, "select": answers.best, "forward": answers.best, "backward": answers.gradients}
    assert not any(disagreement(task, found[task], answers.problem, answers) for task in TASKS)


def test_a_void_column_may_hold_any_index(answers: Answers) -> None:
    scores, indices = answers.best
    assert not disagreement("forward", (scores, indices.clamp(min=0)), answers.problem, answers)


def test_neither_width_nor_order_matters(answers: Answers) -> None:
    scores, indices = (torch.nn.functional.pad(tensor.double(), (3, 0), value=-torch.inf) for tensor in answers.best)
    assert not disagreement("forward", (scores.flip(-1), indices.flip(-1)), answers.problem, answers)


def _masked(row: int, column: int) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    def spoil(scores: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
        scores[:, row, column] = -torch.inf
        return scores, indices

    return spoil


def _repeated(scores: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    indices[:, 8:, 1], scores[:, 8:, 1] = indices[:, 8:, 0], scores[:, 8:, 0]
    return scores, indices


def _void(scores: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    return scores, torch.where(torch.arange(indices.shape[-1]) == 2, -1, indices)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_masked(3, 0), "0 keys instead of 1 at ["),  # the first query that sees a key
        (_masked(-1, 7), "7 keys instead of 8 at ["),
        (_repeated, "a key twice or out of sight at ["),
        (_void, "a key twice or out of sight at ["),
        (lambda scores, indices: (scores * 1.1, indices), "a score that is not its key's at ["),
        (lambda scores, indices: (scores * torch.nan, indices), "keys instead of"),
    ],
)
def test_a_wrong_selection(answers: Answers, spoil: Callable[..., Any], message: str) -> None:
    found = spoil(*(tensor.clone() for tensor in answers.best))
    assert message in disagreement("select", found, answers.problem, answers)


def test_keys_that_are_not_the_best(answers: Answers) -> None:
    worst = (-answers.matrix).masked_fill(answers.matrix == -torch.inf, -torch.inf).topk(8, dim=-1)
    visible = worst.values > -torch.inf
    found = (torch.where(visible, -worst.values, -torch.inf), torch.where(visible, worst.indices, -1))
    assert "other keys selected at [" in disagreement("forward", found, answers.problem, answers)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [(0, torch.nan, "scores out of bounds at ["), (0, 1e3, "1 of "), (-1, 0.0, "a score out of sight at [")],
)
def test_a_wrong_matrix(answers: Answers, column: int, value: float, message: str) -> None:
    matrix = answers.matrix.clone()
    matrix[:, 4:100, column] = value  # queries that see the first key and not the last
    assert message in disagreement("scores", matrix, answers.problem, answers)


@pytest.mark.parametrize("position", range(3))
@pytest.mark.parametrize("spoil", [lambda t: t * 1.05, torch.zeros_like, lambda t: t * torch.nan, lambda t: t[:1]])
def test_a_wrong_gradient(answers: Answers, position: int, spoil: Callable[[Tensor], Tensor]) -> None:
    found = list(answers.gradients)
    found[position] = spoil(found[position])
    wrong = disagreement("backward", tuple(found), answers.problem, answers)
    assert wrong.startswith(f"{('dq', 'dw', 'dk')[position]} off by ")


def test_a_weight_scale_is_in_the_weights_of_rivals(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = answers.problem.spec.model_copy(update={"weight_scale": 0.5})
    problem, operations = replace(answers.problem, spec=spec), answers.package.indexer._ops
    select = operations.checked_select
    monkeypatch.setattr(operations, "checked_select", lambda q, k, weights, *rest: select(q, k, weights / 2, *rest))
    assert not disagreement("forward", torch_tasks(problem, answers)["forward"](), problem, answers)
