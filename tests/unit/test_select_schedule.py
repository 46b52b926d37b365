"""The selection kernel's schedules: every width is served, and every one fits its target."""

import pytest

from v4gen.plan.budget import budget, select_usage
from v4gen.plan.schedule import select_schedules
from v4gen.plan.target import TARGETS

WIDEST = 4096
COLUMNS = 262_144


@pytest.mark.parametrize("name", TARGETS)
def test_schedules_fit_their_target(name: str) -> None:
    target = TARGETS[name]
    schedules = select_schedules(target)
    if target.kind == "hip":
        assert schedules == ()
        return
    assert [s.widest for s in schedules] == sorted(s.widest for s in schedules)
    assert schedules[-1].widest == WIDEST
    for schedule in schedules:
        usage = select_usage(schedule)
        groups = 2 * schedule.widest // schedule.threads
        if target.is_cpu:
            continue
        assert budget(target, schedule.threads).admits(usage)
        assert schedule.min_blocks * usage.shared_memory <= target.shared_memory
        assert schedule.values % groups == 0
        assert schedule.bins % schedule.threads == 0


@pytest.mark.parametrize("name", [name for name, target in TARGETS.items() if target.kind != "hip"])
def test_one_bin_of_columns_fits_beside_the_wanted_keys(name: str) -> None:
    """So that a plateau is narrowed in one pass; where memory is short, the widest schedule takes another."""
    *narrower, widest = select_schedules(TARGETS[name])
    for schedule in narrower if TARGETS[name].is_portable else (*narrower, widest):
        assert schedule.widest + 2 * COLUMNS // schedule.bins <= schedule.capacity
    assert widest.widest <= widest.capacity


def test_portable_schedules_fit_every_device_that_takes_them() -> None:
    target = TARGETS["sm_80"]
    usages = [select_usage(schedule).shared_memory for schedule in select_schedules(target)]
    assert max(usages) <= target.common_shared_memory == 99 * 1024
