"""The schedule of the backward kernel made for Hopper: where it serves, and that its blocks fit side by side."""

import pytest

from v4gen.plan.budget import RESERVED_BYTES, backward_sm90_budget, backward_sm90_usage
from v4gen.plan.plan import make_plan
from v4gen.plan.schedule import BackwardSm90Schedule
from v4gen.plan.target import TARGETS
from v4gen.read.spec import Spec

HOPPER = TARGETS["sm_90a"]


def planned(heads: int = 64, dim: int = 128, target: str = "sm_90a", **keys: object) -> BackwardSm90Schedule | None:
    sizes = {"schema": "v4gen/1", "name": "planned", "heads": heads, "dim": dim, "topk": 64, "compress_ratio": 4}
    return make_plan(Spec.model_validate(sizes | {"targets": [target]} | keys)).targets[0].backward_sm90


def test_three_blocks_share_a_multiprocessor_at_the_size_of_the_published_model() -> None:
    assert planned() == BackwardSm90Schedule(padded_heads=64, block_i=64, blocks_per_sm=3)


@pytest.mark.parametrize("dim", range(16, 145, 16))
@pytest.mark.parametrize("heads", [1, 16, 48, 64])
def test_it_serves_up_to_64_heads_of_dim_144(heads: int, dim: int) -> None:
    schedule = planned(heads, dim)
    assert schedule is not None and schedule.padded_heads == 64
    usage, blocks = backward_sm90_usage(schedule, dim, HOPPER), schedule.blocks_per_sm
    assert backward_sm90_budget(HOPPER, schedule).admits(usage)
    assert blocks * (usage.shared_memory + RESERVED_BYTES) <= HOPPER.shared_memory + RESERVED_BYTES
    assert blocks * usage.registers * schedule.threads <= HOPPER.registers_per_block


def test_a_second_warpgroup_takes_more_heads() -> None:
    schedule = planned(80, 64)
    assert schedule is not None
    assert (schedule.padded_heads, schedule.threads) == (128, 256)
    assert planned(80, 48) is None  # 24 columns of dk for each are not a multiple of 16


@pytest.mark.parametrize("target", [name for name in TARGETS if name != "sm_90a"])
def test_hopper_alone_has_it(target: str) -> None:
    assert planned(target=target) is None


def test_a_dim_beyond_its_registers_is_left_to_the_general_kernel() -> None:
    assert planned(64, 256) is None


def test_a_pinned_tile_is_one_of_the_general_kernel() -> None:
    assert planned(schedule={"sm_90a": {"backward_block_i": 32}}) is None
    assert planned(schedule={"sm_90a": {"scores_block_n": 64}}) is not None
