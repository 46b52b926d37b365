"""Tensors in, Measurements out: the comparisons that every check is made of.

Nothing is averaged: a measurement is the worst element, so one bad row of fifty fails like fifty.
"""

from __future__ import annotations

import torch
from torch import Tensor

from v4gen.run.evidence import Measurement


def within(name: str, actual: Tensor, exact: Tensor, bound: Tensor) -> Measurement:
    """Hold `actual` against float64 `exact`, element by element, and report the worst against its bound.

    Elements whose exact value or bound is not finite are unconstrained. A shape other than `exact`'s fails.
    """
    if actual.shape != exact.shape:
        return Measurement(name, 1, 0, f"shape {list(actual.shape)}, expected {list(exact.shape)}")
    actual = actual.detach().cpu().double()
    error = (actual - exact).abs().nan_to_num(nan=torch.inf)
    constrained = exact.isfinite() & bound.isfinite()
    error, bound = error.where(constrained, 0), bound.where(constrained, 0)
    excess = torch.where(error == 0, 0, error / bound)
    if not excess.numel():
        return Measurement(name, 0, 0)
    worst = int(excess.argmax())
    found, limit = float(error.flatten()[worst]), float(bound.flatten()[worst])
    if found == 0:
        return Measurement(name, 0, float(bound.max()))
    place = _place(exact.shape, worst)
    got, expected = float(actual.flatten()[worst]), float(exact.flatten()[worst])
    wrong = f"{int((error > bound).sum())} of {error.numel()} elements out of bounds"
    return Measurement(name, found, limit, f"{place}: {got:.9g}, expected {expected:.9g} ({wrong})")


def none_of(name: str, wrong: Tensor, actual: Tensor | None = None) -> Measurement:
    """Count the true elements of `wrong`: none is right. `actual` shows what stood at the first of them."""
    wrong = wrong.detach().cpu()
    number = int(wrong.sum())
    if not number:
        return Measurement(name, 0, 0)
    first = int(wrong.flatten().to(torch.int8).argmax())
    value = "" if actual is None else f": {actual.detach().cpu().flatten()[first].item()}"
    return Measurement(name, number, 0, f"{_place(wrong.shape, first)}{value} ({number} of {wrong.numel()} elements)")


def same(name: str, actual: Tensor, expected: Tensor) -> Measurement:
    """Equal shape, dtype and bits; every NaN counts as the same, zeros of different sign do not."""
    actual, expected = actual.detach().cpu(), expected.detach().cpu()
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        got = f"{actual.dtype} {list(actual.shape)}, expected {expected.dtype} {list(expected.shape)}"
        return Measurement(name, 1, 0, got)
    differs = actual != expected
    if actual.is_floating_point():
        differs &= ~(actual.isnan() & expected.isnan())
        differs |= (actual == 0) & (actual.signbit() != expected.signbit())
    return none_of(name, differs, actual)


def holds(name: str, condition: bool, otherwise: str) -> Measurement:
    """A fact that is true or not."""
    return Measurement(name, 0, 0) if condition else Measurement(name, 1, 0, otherwise)


def _place(shape: torch.Size, flat: int) -> str:
    position = [int(axis) for axis in torch.unravel_index(torch.tensor(flat), shape)] if shape else []
    return f"at {position}"
