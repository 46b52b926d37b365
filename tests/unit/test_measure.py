"""Comparisons look at every element: one that is wrong fails, wherever it stands."""

import math

import pytest
import torch

from v4gen.run.evidence import CaseResult, Measurement, Validation
from v4gen.run.measure import holds, none_of, same, within

EXACT = torch.ones(50, 4, dtype=torch.float64)
BOUND = torch.full((50, 4), 0.1, dtype=torch.float64)


def test_within() -> None:
    found = within("x", torch.full((50, 4), 1.05), EXACT, BOUND)
    assert found.passed
    assert found.error == pytest.approx(0.05)
    assert found.margin == pytest.approx(2)


@pytest.mark.parametrize("wrong", [1.2, 0.0, math.nan, math.inf])
def test_one_element_out_of_two_hundred_fails(wrong: float) -> None:
    actual = torch.ones(50, 4)
    actual[31, 2] = wrong
    found = within("x", actual, EXACT, BOUND)
    assert not found.passed
    assert "[31, 2]" in found.where
    assert "1 of 200" in found.where


def test_a_zero_bound_takes_only_the_exact_value() -> None:
    assert within("x", torch.ones(50, 4), EXACT, BOUND * 0).passed
    assert not within("x", torch.ones(50, 4) + 2**-20, EXACT, BOUND * 0).passed


def test_an_infinite_bound_constrains_nothing_else() -> None:
    bound = BOUND.clone()
    bound[3, 3] = math.nan
    actual = torch.ones(50, 4)
    actual[3, 3] = math.nan
    assert within("x", actual, EXACT, bound).passed
    actual[3, 2] = 5
    assert not within("x", actual, EXACT, bound).passed


def test_another_shape_fails() -> None:
    assert not within("x", torch.ones(50, 5), EXACT, BOUND).passed
    assert within("x", torch.ones(0, 4), EXACT[:0], BOUND[:0]).passed


def test_same_is_about_bits() -> None:
    nan = torch.tensor([math.nan, 1.0])
    assert same("x", nan, nan.clone()).passed
    assert not same("x", torch.tensor([-0.0]), torch.tensor([0.0])).passed
    assert not same("x", torch.tensor([1]), torch.tensor([1], dtype=torch.int32)).passed
    assert not same("x", torch.tensor([1.0]), torch.tensor([1.0, 1.0])).passed


def test_counts_and_facts() -> None:
    found = none_of("x", torch.tensor([[False, True], [True, True]]), torch.tensor([[1, 2], [3, 4]]))
    assert (found.error, found.bound) == (3, 0)
    assert found.where == "at [0, 1]: 2 (3 of 4 elements)"
    assert holds("x", True, "so").where == ""
    assert holds("x", False, "so").where == "so"


def test_evidence() -> None:
    assert not Measurement("x", math.nan, 1).passed
    assert Measurement("x", 0, 0).margin == math.inf
    good, bad = Measurement("good", 1, 2), Measurement("bad", 2, 1)
    assert CaseResult("c", "", (good,), 1).passed
    assert not CaseResult("c", "", (good, bad), 1).passed
    assert not CaseResult("c", "", (good,), 1, error="crash").passed
    assert not CaseResult("c", "", (), 1).passed
    assert not Validation("s", "cpu", ()).passed
    assert CaseResult("c", "", (good, bad), 1).tightest == bad
