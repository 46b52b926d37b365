"""Pinned schedules: they override the default one, and are held to the same limits."""

import re
from collections.abc import Mapping

import pytest

from v4gen.diagnostic import Diagnostic, DiagnosticError
from v4gen.plan.plan import TargetPlan, make_plan
from v4gen.read.spec import Spec

LARGE = {"heads": 128, "dim": 256}


def pinned_plan(target: str, pins: Mapping[str, int], heads: int = 64, dim: int = 128) -> TargetPlan:
    spec = Spec.model_validate(
        {
            "schema": "v4gen/1",
            "name": "pinned",
            "heads": heads,
            "dim": dim,
            "topk": 8,
            "compress_ratio": 4,
            "targets": [*dict.fromkeys(("cpu", "sm_90a", target))],
            "schedule": {target: pins} if pins else {},
        }
    )
    return next(entry for entry in make_plan(spec).targets if entry.target.name == "sm_90a")


def faults(target: str, pins: Mapping[str, int], heads: int = 64, dim: int = 128) -> tuple[Diagnostic, ...]:
    with pytest.raises(DiagnosticError) as caught:
        pinned_plan(target, pins, heads, dim)
    return caught.value.diagnostics


@pytest.mark.parametrize(
    ("name", "value"),
    [("scores_block_n", 64), ("scores_block_q", 1), ("scores_num_stages", 1), ("backward_block_i", 32)],
)
def test_a_pin_applies(name: str, value: int) -> None:
    planned, default = pinned_plan("sm_90a", {name: value}), pinned_plan("sm_90a", {})
    kernel, _, field = name.partition("_")
    assert getattr(getattr(planned, kernel), field) == value
    assert getattr(getattr(default, kernel), field) != value
    other = "backward" if kernel == "scores" else "scores"
    assert getattr(planned, other) == getattr(default, other)


def test_pinning_the_keys_of_a_block_leaves_a_warpgroup_for_each_64() -> None:
    scores = pinned_plan("sm_90a", {"scores_block_n": 64}).scores
    assert (scores.block_n, scores.threads) == (64, 128)


@pytest.mark.parametrize("heads", [64, 128])
@pytest.mark.parametrize("dim", [128, 256])
def test_pinning_the_default_changes_nothing(heads: int, dim: int) -> None:
    default = pinned_plan("sm_90a", {}, heads, dim)
    for name, value in (
        ("scores_num_stages", default.scores.num_stages),
        ("scores_threads", default.scores.threads),
        ("backward_threads", default.backward.threads),
        ("backward_padded_heads", default.backward.padded_heads),
    ):
        assert pinned_plan("sm_90a", {name: value}, heads, dim) == default, name


def test_a_pin_for_another_target_changes_nothing() -> None:
    assert pinned_plan("cpu", {"scores_block_n": 8}) == pinned_plan("sm_90a", {})


def test_an_unknown_name_is_refused_with_a_suggestion() -> None:
    found = faults("sm_90a", {"scores_blok_n": 64, "zzz": 1})
    assert found[0].hint == "did you mean `scores_block_n`?"
    assert "`schedule.sm_90a` has no entry `scores_blok_n`" in found[0].message
    assert "scores_block_q" in str(found[1].hint) and "backward_block_i" in str(found[1].hint)


def test_a_pin_over_the_budget_is_refused_with_the_numbers() -> None:
    (fault,) = faults("sm_90a", {"scores_block_n": 4096})
    figures = re.search(r"needs (\d+) bytes .* the limits are (\d+) ", fault.message)
    assert fault.code == "no-schedule" and figures
    assert int(figures[1]) > 4096 * 128 * 2 and figures[2] == "232448"  # 4096 keys of 128 bfloat16 at the least


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("scores_threads", 0),
        ("scores_threads", 100),
        ("backward_threads", 0),
        ("scores_block_n", 0),
        ("scores_block_n", 63),
        ("scores_block_q", 0),
        ("scores_num_stages", 0),
        ("scores_padded_heads", 32),  # fewer than the spec's 64
        ("scores_padded_heads", 68),
        ("backward_padded_heads", 32),
        ("backward_padded_heads", 72),
        ("backward_block_i", 0),
        ("backward_block_i", 40),
    ],
)
def test_a_pin_that_no_kernel_can_have_is_refused_by_name(name: str, value: int) -> None:
    (fault,) = faults("sm_90a", {name: value})
    assert name in fault.message and str(value) in fault.message


@pytest.mark.parametrize(
    ("target", "heads", "pins", "told"),
    [
        ("sm_90a", 8, {"scores_padded_heads": 8, "scores_block_q": 1}, "8 rows of queries and heads"),
        ("sm_90a", 24, {"scores_padded_heads": 24, "scores_block_q": 3}, "72 rows of queries and heads"),
        ("sm_90a", 64, {"scores_block_n": 80}, "cannot share 80 keys"),
        ("sm_90a", 64, {"scores_block_n": 128, "scores_threads": 384}, "384 threads cannot share 128 keys"),
        ("sm_90a", 64, {"backward_sm90_block_i": 128}, "128 keys a tile"),
        ("sm_90a", 64, {"backward_sm90_padded_heads": 192}, "3 warpgroups cannot share 128 columns"),
        ("sm_80", 64, {"scores_num_stages": 2}, "2 stages"),
        ("sm_100a", 64, {"scores_num_stages": 3}, "3 stages"),
        ("gfx942", 64, {"scores_num_stages": 2}, "2 stages"),
    ],
)
def test_sizes_that_the_compiler_cannot_take_are_refused(
    target: str, heads: int, pins: Mapping[str, int], told: str
) -> None:
    """It would crash, or give a kernel with wrong numbers."""
    (fault,) = faults(target, pins, heads)
    assert fault.code == "schedule-size" and told in fault.message and target in fault.message
