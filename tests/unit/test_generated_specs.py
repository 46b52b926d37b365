"""Properties of every legal spec: its plan fits, its package is Python and formatted, and generating settles."""

import ast
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from v4gen import pipeline
from v4gen.diagnostic import DiagnosticError
from v4gen.emit.package import emit_packages
from v4gen.emit.update import Outcome
from v4gen.plan.budget import backward_usage, budget, scores_usage
from v4gen.plan.plan import Plan, make_plan
from v4gen.plan.target import TARGETS
from v4gen.read.spec import Spec

TEXTS = st.text(st.characters(exclude_categories=["Cc", "Cs", "Co", "Cn", "Zl", "Zp", "Cf"]), max_size=60)
INTERFACES = st.sampled_from(
    [
        {"interface": "seed", "layout": "SBHD", "width": "min"},
        *({"layout": layout, "width": width} for layout in ("SBHD", "BSHD") for width in ("min", "topk")),
    ]
)


@st.composite
def specs(draw: st.DrawFn) -> Spec:
    values: dict[str, Any] = {
        "schema": "v4gen/1",
        "name": "p" + draw(st.text("abc_0", max_size=6)),
        "description": draw(TEXTS),
        "origin": draw(TEXTS),
        "heads": draw(st.integers(1, 128)),
        "dim": draw(st.sampled_from([16, 32, 64, 96, 128, 160, 256])),
        "topk": draw(st.integers(1, 4096)),
        "compress_ratio": draw(st.integers(1, 128)),
        "order": draw(st.sampled_from(["score", "index"])),
        "dtype": draw(st.sampled_from(["bfloat16", "float16"])),
        "weight_scale": draw(st.sampled_from([1.0, 0.5, 0.088])),
        "forward": {"scratch_mib": draw(st.integers(1, 4096))},
        "targets": draw(st.lists(st.sampled_from(sorted(TARGETS)), min_size=1, unique=True)),
    }
    return Spec.model_validate(values | draw(INTERFACES))


def planned(spec: Spec) -> Plan | None:
    """The plan, or None where v4gen says that nothing fits."""
    try:
        return make_plan(spec)
    except DiagnosticError:
        return None


@given(specs())
@settings(max_examples=150, deadline=None)
def test_a_plan_is_within_budget(spec: Spec) -> None:
    plan = planned(spec)
    for entry in plan.targets if plan else ():
        for schedule, usage in (
            (entry.scores, scores_usage(entry.scores, spec.dim, entry.target)),
            (entry.backward, backward_usage(entry.backward, spec.dim, entry.target)),
        ):
            limit = budget(entry.target, schedule.threads)
            assert limit.admits(usage)
            assert usage.shared_memory <= entry.target.shared_memory


@given(st.lists(specs(), min_size=1, max_size=3, unique_by=lambda spec: spec.name))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_package_is_formatted_python_and_generating_settles(found: list[Spec]) -> None:
    packages = emit_packages([plan for spec in found if (plan := planned(spec))])
    for package in packages:
        for path, text in package.files.items():
            ast.parse(text, path)
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder)
        written = pipeline.generate(packages, output, complete=True).written
        assert len(written) == sum(len(package.files) for package in packages)
        command = ["format", "--isolated", "--no-cache", "--check", "--line-length=120", "--target-version=py311"]
        done = subprocess.run([sys.executable, "-m", "ruff", *command, folder], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout
        before = {path: path.stat().st_mtime_ns for path in output.rglob("*")}
        assert pipeline.check(packages, output, complete=True) == ()
        assert pipeline.generate(packages, output, complete=True) == Outcome()
        assert {path: path.stat().st_mtime_ns for path in output.rglob("*")} == before
