"""Compiled kernels: each once, whoever asks first, and never a damaged one or another spec's. On CPU tensors."""

import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
import tilelang
import torch

from v4gen.read.spec import Spec
from v4gen.run.package import Package

pytestmark = pytest.mark.xdist_group("cache")

TINY = Path(__file__).parents[2] / "generated" / "tiny"
KERNELS = ["indexer_backward", "indexer_scores"]  # of STEPS
SOURCES = ["host_kernel.cu", "device_kernel.cu"]  # in an entry of the cache
WORKERS = 8

# A training step of the package argv[1] for each cache folder after it, which it meets as a new process would. On small
# integers a right result is exact, so processes that agree with the reference agree bit for bit. The indices are given:
# selection takes longest to compile, and goes the same way through the cache.
STEPS = """
import importlib, os, sys
from pathlib import Path

import tilelang, torch

from v4gen.run.package import imported_package

torch.set_num_threads(1)
generator = torch.Generator().manual_seed(0)
draw = lambda *shape: torch.randint(-2, 3, shape, generator=generator).double()
exact = [draw(40, 2, 4, 32).requires_grad_(), draw(10, 2, 32).requires_grad_(), draw(40, 2, 4).requires_grad_()]
half = [t.detach().bfloat16().requires_grad_() for t in exact[:2]]
inputs = [*half, exact[2].detach().float().requires_grad_()]
for cache in sys.argv[2:]:
    print("=== next", flush=True)
    os.environ["TILELANG_CACHE_DIR"] = cache
    for kernels in tilelang.cache._dispatch_map.values():
        kernels._memory_cache.clear()
    with imported_package(Path(sys.argv[1])) as package:
        reference = importlib.import_module(package.indexer.__package__ + ".reference")
        due, indices = reference.reference_indexer(*exact)
        scores, _ = package.indexer.lightning_indexer(*inputs, topk_indices=indices)
        assert torch.equal(scores, due.float())
        upstream = (indices % 3 - 1).double()
        gradients = torch.autograd.grad(scores, inputs, upstream.float())
        for found, due in zip(gradients, torch.autograd.grad(due, exact, upstream)):
            assert torch.equal(found, due.to(found.dtype))
        print("right", flush=True)
"""


def steps(script: Path, *caches: Path) -> subprocess.Popen[str]:
    """A process at work on STEPS."""
    environment = os.environ | {"TILELANG_CACHE_DIR": str(caches[0]), "TILELANG_PRINT_ON_COMPILATION": "1"}
    command = [sys.executable, *map(str, (script, TINY, *caches))]
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def compiled_for_each(process: subprocess.Popen[str]) -> list[list[str]]:
    """The names of the kernels that the process compiled for each of its caches, all of whose results are right."""
    printed, _ = process.communicate()
    assert process.returncode == 0, printed[-4000:]
    parts = printed.split("=== next\n")[1:]
    assert all("right\n" in part for part in parts)
    return [sorted(re.findall(r"begins to compile kernel `(\w+)`", part)) for part in parts]


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("steps") / "steps.py"
    path.write_text(STEPS, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def shared_by_all(script: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that was empty when eight processes started to work on it at once."""
    cache = tmp_path_factory.mktemp("cache")
    processes = [steps(script, cache) for _ in range(WORKERS)]
    for process in processes:
        (compiled,) = compiled_for_each(process)
        assert set(compiled) <= set(KERNELS)
    return cache


def entries(cache: Path) -> list[Path]:
    """The folders of compiled kernels in a cache of TileLang's."""
    return sorted(path.parent for path in cache.glob("*/*/kernels/*/manifest.json"))


@pytest.mark.timeout(900)  # eight compilers share the cores of the machine
def test_eight_processes_fill_one_cache(script: Path, shared_by_all: Path) -> None:
    assert len(entries(shared_by_all)) == len(KERNELS)
    assert not list(shared_by_all.glob("*/*/.staging/*"))
    assert compiled_for_each(steps(script, shared_by_all)) == [[]]


def tiny(**constants: Any) -> Spec:
    """The spec `tiny`, with other constants."""
    options = {"interface": "seed", "layout": "SBHD", "width": "min"}
    sizes = {"heads": 4, "dim": 32, "topk": 8, "compress_ratio": 4}
    return Spec.model_validate({"schema": "v4gen/1", "name": "tiny", **options, **sizes, **constants})


def damages(path: Path) -> Iterator[tuple[str, bytes]]:
    """A truncated file, as a full disk leaves it; of what is loaded and run also an empty one, and one of garbage."""
    data = path.read_bytes()
    yield "truncated", data[: len(data) // 2]
    if path.suffix == ".so":
        yield "empty", b""
        yield "garbage", b"\xa5" * len(data)


@pytest.mark.timeout(900)
def test_a_damaged_entry_is_compiled_anew(script: Path, shared_by_all: Path, tmp_path: Path) -> None:
    (entry,) = (entry for entry in entries(shared_by_all) if "indexer_backward" in (entry / SOURCES[0]).read_text())
    caches = []
    for file in sorted(entry.iterdir()):
        for damage, data in damages(file):
            cache = tmp_path / f"{file.name} {damage}"
            shutil.copytree(shared_by_all, cache)
            (cache / file.relative_to(shared_by_all)).write_bytes(data)
            caches.append(cache)
    assert len(caches) == 7
    assert compiled_for_each(steps(script, *caches)) == [["indexer_backward"]] * len(caches)


@pytest.fixture
def requested(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the kernels that packages have asked TileLang for, in order."""
    names: list[str] = []
    compile_kernel = tilelang.compile

    def counting(function: Any, **options: Any) -> Any:
        names.append(str(function.attrs["global_symbol"]))
        return compile_kernel(function, **options)

    monkeypatch.setattr(tilelang, "compile", counting)
    return names


def assert_right(package: Package, spec: Spec, queries: int, batch: int = 2) -> None:
    """Hold a training step on small integers, whose results are exact, against the package's own reference."""
    reference = importlib.import_module(f"{package.indexer.__package__}.reference")
    generator = torch.Generator().manual_seed(queries)
    keys = queries // spec.compress_ratio
    shapes = (queries, batch, spec.heads, spec.dim), (keys, batch, spec.dim), (queries, batch, spec.heads)
    exact = [torch.randint(-2, 3, shape, generator=generator).double().requires_grad_() for shape in shapes]
    dtypes = (torch.bfloat16, torch.bfloat16, torch.float32)
    inputs = [t.detach().to(dtype).requires_grad_() for t, dtype in zip(exact, dtypes, strict=True)]
    scores, indices = package.indexer.lightning_indexer(*inputs)
    due, due_indices = reference.reference_indexer(*exact)
    assert torch.equal(scores, due.float()) and torch.equal(indices, due_indices)
    upstream = (indices % 3 - 1).double()
    found = torch.autograd.grad(scores, inputs, upstream.float())
    for gradient, expected in zip(found, torch.autograd.grad(due, exact, upstream), strict=True):
        assert torch.equal(gradient, expected.to(gradient.dtype))


def test_eight_threads_compile_each_kernel_once(load: Callable[[Spec], Package], requested: list[str]) -> None:
    package = load(tiny())
    together = Barrier(WORKERS)

    def work(_: int) -> None:
        together.wait()
        assert_right(package, tiny(), queries=40)

    with ThreadPoolExecutor(WORKERS) as threads:
        list(threads.map(work, range(WORKERS)))
    assert sorted(requested) == ["indexer_backward", "indexer_scores", "indexer_select"]


def test_no_size_of_a_call_compiles_anything(load: Callable[[Spec], Package], requested: list[str]) -> None:
    package = load(tiny())
    assert_right(package, tiny(), queries=40)
    requested.clear()
    for queries in (0, 1, 3, 4, 7, 31, 32, 33, 64, 130, 257):
        for batch in (1, 3):
            assert_right(package, tiny(), queries, batch)
    assert requested == []


@pytest.mark.parametrize(
    "constant",
    [{"heads": 5}, {"dim": 48}, {"topk": 5}, {"compress_ratio": 3}, {"weight_scale": 0.5}],
    ids=lambda constant: next(iter(constant)),
)
def test_specs_that_differ_in_one_constant_do_not_mix(
    constant: dict[str, Any], load: Callable[[Spec], Package]
) -> None:
    """In one process, with one cache on disk, which may hold the kernels of either spec already."""
    specs = tiny(), tiny(**constant)
    packages = [load(spec) for spec in specs]
    for _ in range(2):
        for spec, package in zip(specs, packages, strict=True):
            assert_right(package, spec, queries=40)
