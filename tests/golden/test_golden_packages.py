"""Whole packages as they were last accepted: `<case>/spec.yaml` and the package in `<case>/expected` that it gives.

After a change to a template, look at what this test says, then accept it with

    V4GEN_UPDATE_GOLDEN=1 pytest tests/golden

and commit the cases: their diff is what reviewers read. A new case is a folder with a `spec.yaml`.
"""

import os
from pathlib import Path

import pytest

from v4gen.emit.compare import compare, orphans
from v4gen.emit.package import Package
from v4gen.emit.write import write_package
from v4gen.pipeline import emit
from v4gen.plan.plan import Plan, make_plan
from v4gen.read.reader import read_specs

HERE = Path(__file__).parent
CASES = sorted(path.parent for path in HERE.glob("*/spec.yaml"))
SHIPPED = sorted((HERE.parents[1] / "specs").glob("*.yaml"))  # their packages are held by `v4gen check`
HINT = "accept it with: V4GEN_UPDATE_GOLDEN=1 pytest tests/golden"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_spec_gives_the_accepted_package(case: Path) -> None:
    _, (package,) = emit([case / "spec.yaml"])
    expected = case / "expected"
    if os.environ.get("V4GEN_UPDATE_GOLDEN"):
        write_package(package, expected)
        for drift in _left_over(package, case):
            drift.unlink()
    diffs = [drift.diff for drift in compare(package, expected)]
    assert not diffs, f"{case.name} is not what was accepted.\n\n{''.join(diffs)}\n{HINT}"
    assert not _left_over(package, case), HINT


def _left_over(package: Package, case: Path) -> list[Path]:
    return [drift.path for drift in orphans([Package("expected", package.files)], case)]


def test_the_cases_take_both_sides_of_every_branch() -> None:
    plans = [make_plan(spec) for spec in read_specs([*(case / "spec.yaml" for case in CASES), *SHIPPED])]
    names = [name for name, kind in Plan.__annotations__.items() if kind is bool] + ["is_float16"]
    assert len(names) > 5
    branches = {name: lambda plan, name=name: getattr(plan, name) for name in names} | {
        "has a description": lambda plan: bool(plan.description),
        "has an origin": lambda plan: bool(plan.origin),
        "compresses": lambda plan: plan.compress_ratio > 1,
    }
    one_sided = [name for name, side in branches.items() if {side(plan) for plan in plans} != {True, False}]
    assert not one_sided
    assert {plan.layout for plan in plans} == {"SBHD", "BSHD", "THD"}
    assert {plan.mask for plan in plans} == {"causal", "ranges", "varlen"}
