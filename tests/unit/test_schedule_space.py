"""The space that a search draws from: large enough, held to the budgets, and nearest to the plan first."""

import re
from collections.abc import Iterator

import pytest

from v4gen.plan.choice import select_excess
from v4gen.plan.pin import pin_names
from v4gen.plan.plan import TargetPlan, make_plan
from v4gen.plan.schedule import SelectSchedule, select_schedules, selection_fault, serving
from v4gen.plan.space import Option, options
from v4gen.plan.target import TARGETS
from v4gen.read.reader import parse_spec
from v4gen.read.spec import Spec

FLASH = "schema: v4gen/1\nname: one\nheads: 64\ndim: 128\ntopk: 512\ncompress_ratio: 4\ntargets: [{target}]\n"
NAMES = [name for name, target in TARGETS.items() if target.kind != "hip"]


def flash(target: str, more: str = "") -> Spec:
    return parse_spec(FLASH.format(target=target) + more, "one.yaml")


def planned(spec: Spec, option: Option) -> TargetPlan:
    (target,) = spec.targets
    (plan,) = make_plan(spec.model_copy(update={"schedule": {target: dict(option.pins)}})).targets
    return plan


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_has_fifty_admitted_schedules(name: str) -> None:
    for kernel, found in options(flash(name), TARGETS[name]).items():
        assert len([option for option in found if option.excess is None]) >= 50, kernel
        assert len({tuple(option.pins.items()) for option in found}) == len(found)
        assert {pin for option in found for pin in option.pins} <= set(pin_names())


@pytest.mark.parametrize("name", TARGETS)
def test_the_plans_own_come_first_whatever_is_pinned(name: str) -> None:
    spec = flash(name)
    pinned = flash(name, f"schedule:\n  {name}:\n    backward_block_i: 16\n")
    (plan,) = make_plan(spec).targets
    first = {kernel: found[0] for kernel, found in options(spec, TARGETS[name]).items()}
    assert first == {kernel: found[0] for kernel, found in options(pinned, TARGETS[name]).items()}
    assert set(first) == ({"scores", "select", "backward"} if plan.select else {"scores", "backward"})
    assert all(planned(spec, option) == plan and not option.excess and not option.fault for option in first.values())


def sampled(name: str) -> Iterator[Option]:
    for found in options(flash(name), TARGETS[name]).values():
        usable = [option for option in found if not option.excess and not option.fault]
        yield from usable[1 :: max(1, len(usable) // 7)]


@pytest.mark.parametrize("name", TARGETS)
def test_an_option_is_what_its_pins_give(name: str) -> None:
    spec = flash(name)
    for option in sampled(name):
        plan = planned(spec, option)
        schedules = {"scores": plan.scores, "backward": plan.backward, "backward_sm90": plan.backward_sm90}
        schedules["select"] = serving(plan.select, spec.topk)
        for pin, size in option.pins.items():
            kernel = next(kernel for kernel in sorted(schedules, reverse=True) if pin.startswith(f"{kernel}_"))
            assert getattr(schedules[kernel], pin.removeprefix(f"{kernel}_")) == size, option


def test_what_is_out_says_why() -> None:
    found = options(flash("sm_90a"), TARGETS["sm_90a"])
    excesses = {option.excess for option in found["scores"] if option.excess}
    assert any(re.fullmatch(r"\d+ registers a thread, over \d+", excess) for excess in excesses)
    assert any("bytes of shared memory, over" in excess for excess in excesses)
    assert any("warps cannot share" in (option.fault or "") for option in found["backward"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"capacity": 3000}, "powers of two"),
        ({"capacity": 256}, "512 keys do not fit into a capacity of 256"),
        ({"threads": 2048}, "cannot share 1024 bins"),
        ({"values": 6}, "no whole loads"),
        ({"threads": 128, "values": 12}, "cannot be shared by 8 groups"),
    ],
)
def test_a_selection_that_no_kernel_can_have(changes: dict[str, int], message: str) -> None:
    target = TARGETS["sm_90a"]
    usual = select_schedules(target)[0]
    assert selection_fault(usual, target) is None and select_excess(usual, target) is None
    assert message in (selection_fault(SelectSchedule(**vars(usual) | changes), target) or "")


def test_too_many_blocks_of_a_selection_exceed_shared_memory() -> None:
    usual = select_schedules(TARGETS["sm_90a"])[0]
    assert "8 blocks of" in (select_excess(SelectSchedule(**vars(usual) | {"min_blocks": 8}), TARGETS["sm_90a"]) or "")
