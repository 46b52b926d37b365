"""Time the kernels of a package beside its rivals and a matrix product, interleaved, in one run on random data."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from v4gen.plan.cost import backward_flops, scores_flops
from v4gen.run.contest import RIVALS, Problem, Shape, Tasks, package_tasks
from v4gen.run.lower import quiet
from v4gen.run.package import Package, imported_package

if TYPE_CHECKING:
    from v4gen.read.spec import Spec

ROUNDS = {"cpu": 9, "cuda": 7}
# A burst on a GPU lasts as long for everybody: a short one runs at clocks that a long one does not hold. Between
# bursts the card rests, so that each starts from the same state.
BURST_SECONDS = 0.06
REST_SECONDS = 0.2
MATMUL_SIZE = {"cpu": 1024, "cuda": 8192}
MATMUL = "matmul"
OURS = "v4gen"
MIB = 1 << 20


@dataclass(frozen=True)
class Timing:
    """One task of one contestant at one shape.

    Milliseconds of a call: median, fastest and slowest burst, and of calls on end for seconds (`sustained_ms`, 0 where
    it was not asked for). `flops` counts the operations of a call, 0 where the task has none; `extra_mib` is the memory
    that a call takes beyond its inputs and outputs, in MiB, -1 where it is not known.
    """

    task: str
    who: str
    batch: int
    queries: int
    keys: int
    median_ms: float
    fastest_ms: float
    slowest_ms: float
    sustained_ms: float
    flops: int
    extra_mib: float

    @property
    def gflops(self) -> float:
        """10⁹ operations a second at the median; 0 where none are counted."""
        return self.flops / self.median_ms / 1e6

    def as_data(self) -> dict[str, Any]:
        """JSON-ready data, keys in a fixed order."""
        return asdict(self) | {"gflops": round(self.gflops, 2)}


@dataclass(frozen=True)
class Job:
    """Something to time: a call, by whom, and what it costs."""

    task: str
    who: str
    call: Callable[[], Any]
    flops: int


def bench_package(
    folder: Path,
    spec: "Spec",
    device: str,
    shapes: Sequence[Shape],
    rivals: Sequence[str] = (),
    sustained_seconds: float = 0,
) -> tuple[Timing, ...]:
    """Scores, selection, whole forward and backward of the package in `folder`, and the same of `rivals`, at `shapes`.

    The matrix product is torch's: on the CPU in float32 on one thread, as the kernels are; else in the spec's dtype.
    A rival that is not installed, or does not take the shape, has no timings.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1 if device == "cpu" else threads)
    try:
        with imported_package(folder) as package, quiet():
            return tuple(
                timing
                for shape in shapes
                for timing in _bench_shape(package, Problem(spec, shape, device), rivals, sustained_seconds)
            )
    finally:
        torch.set_num_threads(threads)


def _bench_shape(package: Package, problem: Problem, rivals: Sequence[str], sustained_seconds: float) -> list[Timing]:
    shape, device = problem.shape, problem.device
    contestants: dict[str, Tasks | None] = {OURS: package_tasks(package, problem)}
    contestants |= {name: RIVALS[name](package, problem) for name in rivals}
    jobs = [_matmul_job(problem)]
    for who, tasks in contestants.items():
        jobs += [Job(task, who, call, _flops(task, problem)) for task, call in (tasks or {}).items()]
    extra = [_extra_memory(job.call, device) for job in jobs]  # also the warm-up
    bursts = [_burst_length(job.call, device) for job in jobs]
    rounds = [[_time(job.call, n, device) for job, n in zip(jobs, bursts, strict=True)] for _ in range(ROUNDS[device])]
    timings = []
    for position, job in enumerate(jobs):
        times = sorted(entry[position] for entry in rounds)
        sustained = _sustained(job.call, times[0], device, sustained_seconds) if sustained_seconds else 0.0
        timings.append(
            Timing(
                job.task,
                job.who,
                shape.batch,
                shape.queries,
                shape.keys,
                statistics.median(times),
                times[0],
                times[-1],
                sustained,
                job.flops,
                extra[position],
            )
        )
    return timings


def _matmul_job(problem: Problem) -> Job:
    import torch

    size = MATMUL_SIZE[problem.device]
    dtype = torch.float32 if problem.device == "cpu" else problem.dtype
    matrix = torch.randn(size, size, device=problem.device).to(dtype)
    return Job(MATMUL, "torch", lambda: matrix @ matrix, 2 * size**3)


def _flops(task: str, problem: Problem) -> int:
    spec, shape = problem.spec, problem.shape
    counts: Mapping[str, int] = {
        "scores": scores_flops(spec.heads, spec.dim, shape.pairs),
        "forward": scores_flops(spec.heads, spec.dim, shape.pairs),
        "backward": backward_flops(spec.heads, spec.dim, shape.selected),
    }
    return counts.get(task, 0)


def _extra_memory(call: Callable[[], Any], device: str) -> float:
    """MiB at the peak of a call beyond what it returns; -1 on the CPU, where torch does not count."""
    if device == "cpu":
        call()
        return -1.0
    import torch

    call()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    result = call()
    torch.cuda.synchronize()
    peak, kept = torch.cuda.max_memory_allocated(), torch.cuda.memory_allocated() - before
    del result
    return float(peak - before - kept) / MIB


def _burst_length(call: Callable[[], Any], device: str) -> int:
    return 1 if device == "cpu" else max(1, round(BURST_SECONDS * 1e3 / _time(call, 3, device, rest=False)))


def _sustained(call: Callable[[], Any], milliseconds: float, device: str, seconds: float) -> float:
    return _time(call, max(1, round(seconds * 1e3 / milliseconds)), device, rest=False)


def _time(call: Callable[[], Any], count: int, device: str, *, rest: bool = True) -> float:
    """Milliseconds of one of `count` calls on end."""
    if device == "cpu":
        start = time.perf_counter()
        for _ in range(count):
            call()
        return (time.perf_counter() - start) * 1e3 / count
    import torch

    event: Any = torch.cuda.Event
    begin, end = event(enable_timing=True), event(enable_timing=True)
    if rest:
        time.sleep(REST_SECONDS)
    call()  # so that the first timed launch finds the card awake
    begin.record()
    for _ in range(count):
        call()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) / count
