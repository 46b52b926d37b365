"""Traced kernels are a function of the spec, and lower to plain C for the CPU."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from v4gen.emit.package import emit_packages
from v4gen.emit.write import write_package
from v4gen.plan.plan import make_plan
from v4gen.plan.target import TARGETS
from v4gen.read.spec import Spec
from v4gen.run.lower import KERNELS, lower, trace
from v4gen.run.package import Package, imported_package

ROOT = Path(__file__).parents[2]
TINY = ROOT / "generated" / "tiny"

# One worker imports TileLang and the package once.
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
        ({"layout": "BSHD"}, {"scores", "backward"}),  # they index tensors in the layout as it comes
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


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels_lower_to_plain_c(tiny: Package, kernel: str) -> None:
    found = lower(tiny, kernel, TARGETS["cpu"])
    assert found.dynamic_shared_memory == 0
    assert not [word for word in ("__global__", "half", "bfloat16", "threadIdx") if word in found.source]
