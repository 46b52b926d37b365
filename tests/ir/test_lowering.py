"""Traced kernels are a function of the spec, and lower for every target; needs no GPU."""

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from v4gen.emit.package import emit_packages
from v4gen.emit.write import write_package
from v4gen.plan.budget import backward_sm90_usage, budget, scores_usage, select_usage
from v4gen.plan.plan import Plan, make_plan
from v4gen.plan.target import TARGETS
from v4gen.read.spec import Spec
from v4gen.run.compile import Resources, assemble
from v4gen.run.lower import KERNELS, Lowered, lower, trace
from v4gen.run.package import Package, imported_package
from v4gen.run.toolchain import find_nvcc

ROOT = Path(__file__).parents[2]
TINY = ROOT / "generated" / "tiny"
FLASH = ROOT / "generated" / "deepseek_v4_flash"

# One lowering for Hopper takes seconds and its compilation more: one worker does each once.
pytestmark = pytest.mark.xdist_group("ir")


@pytest.fixture(scope="module")
def tiny() -> Iterator[Package]:
    with imported_package(TINY) as package:
        yield package


def structural_hash(function: Any) -> int:
    from tilelang import tvm

    return int(tvm.ir.structural_hash(function))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("target", ["cpu", "sm_90a"])
def test_tracing_twice_gives_one_function(tiny: Package, kernel: str, target: str) -> None:
    from tilelang import tvm

    first, second = (trace(tiny, kernel, target) for _ in range(2))
    assert tvm.ir.structural_equal(first, second)
    assert first.script() == second.script()


IN_ANOTHER_PROCESS = """
import json, sys
from pathlib import Path
from tilelang import tvm
from v4gen.plan.target import TARGETS
from v4gen.run.lower import KERNELS, lower, trace
from v4gen.run.package import imported_package
with imported_package(Path(sys.argv[1])) as package:
    hashes = {
        f"{kernel} {target}": int(tvm.ir.structural_hash(trace(package, kernel, target)))
        for kernel in KERNELS for target in ("cpu", "sm_90a")
    }
    print(json.dumps(hashes | {"cpu source": lower(package, "scores", TARGETS["cpu"]).digest}))
"""


def test_another_process_traces_and_lowers_the_same(tiny: Package, tmp_path: Path) -> None:
    command = [sys.executable, "-c", IN_ANOTHER_PROCESS, str(TINY)]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={"PYTHONHASHSEED": "77", "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    here = {
        f"{kernel} {target}": structural_hash(trace(tiny, kernel, target))
        for kernel in KERNELS
        for target in ("cpu", "sm_90a")
    }
    expected = here | {"cpu source": lower(tiny, "scores", TARGETS["cpu"]).digest}
    assert json.loads(done.stdout.splitlines()[-1]) == expected


@pytest.mark.parametrize(
    ("changes", "kernels"),
    [
        ({"weight_scale": 0.5}, {"scores", "backward"}),
        ({"layout": "BSHD"}, set()),  # the kernels see every layout batch first, through its strides
        ({"dtype": "float16"}, {"backward"}),  # widened on the CPU; only the backward scales its gradients
        ({"topk": 9, "compress_ratio": 3, "order": "index", "width": "topk"}, {"select"}),
    ],
    ids=lambda value: "-".join(sorted(value)) or "none",
)
def test_a_constant_that_matters_changes_the_kernel(
    tiny: Package, tmp_path: Path, changes: dict[str, object], kernels: set[str]
) -> None:
    sizes = {"schema": "v4gen/1", "name": "tiny", "heads": 4, "dim": 32, "topk": 8, "compress_ratio": 4}
    plan = make_plan(Spec.model_validate({**sizes, "layout": "SBHD", "width": "min", **changes}))
    write_package(emit_packages([plan])[0], tmp_path)
    with imported_package(tmp_path) as other:
        differ = {
            k for k in KERNELS if structural_hash(trace(tiny, k, "cpu")) != structural_hash(trace(other, k, "cpu"))
        }
    assert differ == kernels


@cache
def lowered(folder: Path, kernel: str, target: str) -> Lowered:
    with imported_package(folder) as package:
        return lower(package, kernel, TARGETS[target])


@cache
def resources(folder: Path, kernel: str) -> Resources:
    nvcc = find_nvcc()
    if nvcc is None:
        pytest.skip("no nvcc to compile CUDA kernels with: pip install 'v4gen[cuda]'")
    return assemble(lowered(folder, kernel, "sm_90a"), TARGETS["sm_90a"], nvcc)


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels_lower_for_hopper_without_a_gpu(kernel: str) -> None:
    found = lowered(TINY, kernel, "sm_90a")
    assert "__global__" in found.source
    assert ("wgmma" in found.source) == (kernel != "select")
    assert 0 < found.dynamic_shared_memory <= TARGETS["sm_90a"].shared_memory


@pytest.mark.parametrize(
    ("target", "kernel"),
    [("sm_80", "backward"), ("sm_100a", "scores"), ("sm_100a", "backward"), ("gfx942", "backward")],
)
def test_kernels_lower_for_the_other_targets(target: str, kernel: str, every_target: Path) -> None:
    found = lowered(every_target, kernel, target)
    assert "__global__" in found.source and "wgmma" not in found.source
    assert found.dynamic_shared_memory <= TARGETS[target].shared_memory


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels_lower_to_plain_c(kernel: str) -> None:
    found = lowered(TINY, kernel, "cpu")
    assert found.dynamic_shared_memory == 0
    assert not [word for word in ("__global__", "half", "bfloat16", "threadIdx") if word in found.source]


@pytest.fixture(scope="module")
def every_target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sizes = {"schema": "v4gen/1", "name": "tiny", "heads": 4, "dim": 32, "topk": 8, "compress_ratio": 4}
    plan = make_plan(Spec.model_validate({**sizes, "targets": ["sm_80", "sm_100a", "gfx942"]}))
    folder = tmp_path_factory.mktemp("every_target")
    write_package(emit_packages([plan])[0], folder)
    return folder


@pytest.mark.parametrize("kernel", KERNELS)
def test_hopper_kernels_compile_without_a_spill(kernel: str) -> None:
    found = resources(TINY, kernel)
    assert found.spill_bytes == 0
    assert kernel != "scores" or found.instructions["wgmma"] > 0


def plan_of(name: str) -> Plan:
    from v4gen.read.reader import read_spec

    return make_plan(read_spec(ROOT / "specs" / f"{name}.yaml"))


@pytest.mark.parametrize("kernel", KERNELS)
def test_budgets_err_on_the_high_side(kernel: str) -> None:
    """What the compiler says a kernel takes is no more than what the plan reckoned with."""
    plan = plan_of("tiny")
    (entry,) = (entry for entry in plan.targets if entry.target.name == "sm_90a")
    if kernel == "scores":
        usage, threads = scores_usage(entry.scores, plan.dim, entry.target), entry.scores.threads
    elif kernel == "backward":
        assert entry.backward_sm90 is not None
        usage, threads = backward_sm90_usage(entry.backward_sm90, plan.dim, entry.target), entry.backward_sm90.threads
    else:
        # The kernel of the spec's own top-k, the first that is wide enough.
        schedule = next(schedule for schedule in entry.select if plan.topk <= schedule.widest)
        usage, threads = select_usage(schedule), schedule.threads
    assert lowered(TINY, kernel, "sm_90a").dynamic_shared_memory <= usage.shared_memory
    assert resources(TINY, kernel).registers <= budget(entry.target, threads).registers
