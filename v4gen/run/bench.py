"""Time the kernels of a package: medians of interleaved runs on random data, a matrix product among them."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from v4gen.plan.cost import backward_flops, scores_flops, visible_pairs
from v4gen.run.lower import quiet
from v4gen.run.package import Package, imported_package

if TYPE_CHECKING:
    import torch

    from v4gen.read.spec import Spec

ROUNDS = 9
CUDA_BURST = 10  # launches between two events: a single short one would time the launch
MATMUL_SIZE = {"cpu": 1024, "cuda": 8192}


@dataclass(frozen=True)
class Timing:
    """One thing timed at one shape: milliseconds of the median, fastest and slowest round, and operations a call."""

    name: str
    queries: int
    keys: int
    median_ms: float
    fastest_ms: float
    slowest_ms: float
    flops: int

    @property
    def gflops(self) -> float:
        """10⁹ operations a second at the median; 0 where none are counted."""
        return self.flops / self.median_ms / 1e6

    def as_data(self) -> dict[str, Any]:
        """JSON-ready data, keys in a fixed order."""
        return asdict(self) | {"gflops": round(self.gflops, 2)}


def bench_package(folder: Path, spec: "Spec", device: str, lengths: Sequence[int]) -> tuple[Timing, ...]:
    """Scores, whole forward and backward of the package in `folder`, one sequence of each of `lengths` tokens.

    The matrix product is torch's: on the CPU in float32 on one thread, as the kernels are; else in the spec's dtype.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1 if device == "cpu" else threads)
    try:
        with imported_package(folder) as package, quiet():
            return tuple(timing for length in lengths for timing in _bench_length(package, spec, device, length))
    finally:
        torch.set_num_threads(threads)


def _bench_length(package: Package, spec: "Spec", device: str, queries: int) -> list[Timing]:
    import torch

    keys = queries // spec.compress_ratio
    pairs = visible_pairs(queries, keys, spec.compress_ratio)
    selected = sum(min((t + 1) // spec.compress_ratio, spec.topk) for t in range(queries))
    q, k, weights = _inputs(spec, device, queries, keys)
    indexer = package.indexer.LightningIndexer()
    scores, indices = indexer(q, k, weights)
    grad = torch.randn_like(scores)
    size = MATMUL_SIZE[device]
    matrix = torch.randn(size, size, device=device, dtype=torch.float32 if device == "cpu" else q.dtype)
    work: dict[str, tuple[Callable[[], object], int]] = {
        "matmul": (lambda: matrix @ matrix, 2 * size**3),
        "scores": (lambda: indexer.scores(q, k, weights), scores_flops(spec.heads, spec.dim, pairs)),
        "forward": (lambda: indexer(q, k, weights), scores_flops(spec.heads, spec.dim, pairs)),
        "backward": (
            lambda: package.bwd.batched_indexer_bwd(q, weights, k, indices, grad),
            backward_flops(spec.heads, spec.dim, selected),
        ),
    }
    for call, _ in work.values():
        call()
    # Interleaved, so that a change of clocks or load meets all of them alike.
    rounds = [{name: _time(call, device) for name, (call, _) in work.items()} for _ in range(ROUNDS)]
    timings = []
    for name, (_, flops) in work.items():
        times = sorted(entry[name] for entry in rounds)
        timings.append(Timing(name, queries, keys, statistics.median(times), times[0], times[-1], flops))
    return timings


def _inputs(spec: "Spec", device: str, queries: int, keys: int) -> "tuple[torch.Tensor, torch.Tensor, torch.Tensor]":
    import torch

    generator = torch.Generator(device).manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, device=device)

    outer = (queries, 1) if spec.layout == "SBHD" else (1, queries)
    key_outer = (keys, 1) if spec.layout == "SBHD" else (1, keys)
    dtype = getattr(torch, spec.dtype)
    q = normal(*outer, spec.heads, spec.dim).to(dtype)
    return q, normal(*key_outer, spec.dim).to(dtype), normal(*outer, spec.heads)


def _time(call: Callable[[], object], device: str) -> float:
    """Milliseconds of one call."""
    if device == "cpu":
        start = time.perf_counter()
        call()
        return (time.perf_counter() - start) * 1e3
    import torch

    event: Any = torch.cuda.Event
    begin, end = event(enable_timing=True), event(enable_timing=True)
    begin.record()
    for _ in range(CUDA_BURST):
        call()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) / CUDA_BURST
