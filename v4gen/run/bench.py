"""Time the kernels of a package beside its rivals and a matrix product, interleaved, in one run on random data."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from v4gen.plan.cost import backward_flops, scores_flops
from v4gen.run.agreement import disagreement
from v4gen.run.contest import Answers, Problem, Shape, Unfit
from v4gen.run.lower import quiet
from v4gen.run.package import Package, imported_package
from v4gen.run.rivals import RIVALS

if TYPE_CHECKING:
    from v4gen.read.spec import Spec

_T = TypeVar("_T")

ROUNDS = {"cpu": 9, "cuda": 7}
# A burst on a GPU lasts as long for everybody: a short one runs at clocks that a long one does not hold. Between
# bursts the card rests, so that each starts from the same state.
BURST_SECONDS = 0.06
REST_SECONDS = 0.2
MATMUL_SIZE = {"cpu": 1024, "cuda": 8192}
MATMUL = "matmul"
OURS = "v4gen"
EVERY_TASK = "all"
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
    shape: Shape
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


@dataclass(frozen=True)
class Skip:
    """Why a task (or EVERY_TASK) of a contestant has no timing at a shape: absent, unfit, out of memory or wrong."""

    task: str
    who: str
    shape: Shape
    reason: str


@dataclass(frozen=True)
class Contest:
    """What a run found, in the order of its shapes."""

    timings: tuple[Timing, ...]
    skips: tuple[Skip, ...]

    @property
    def shapes(self) -> tuple[Shape, ...]:
        return tuple(dict.fromkeys([t.shape for t in self.timings] + [s.shape for s in self.skips]))

    def find(self, task: str, who: str, shape: Shape) -> Timing | None:
        return next((t for t in self.timings if (t.task, t.who, t.shape) == (task, who, shape)), None)

    def share(self, timing: Timing) -> float | None:
        """Its rate beside that of the matrix product of the same shape; None where no operations are counted."""
        ceiling = self.find(MATMUL, "torch", timing.shape)
        return timing.gflops / ceiling.gflops if timing.flops and ceiling else None

    def ratio(self, timing: Timing) -> float | None:
        """How many times as long as the package it took; None where the package has no such task."""
        ours = self.find(timing.task, OURS, timing.shape)
        return timing.median_ms / ours.median_ms if ours else None

    def as_data(self) -> dict[str, list[dict[str, Any]]]:
        """JSON-ready data, keys in a fixed order."""
        skips = [{"task": s.task, "who": s.who, **s.shape.as_data(), "reason": s.reason} for s in self.skips]
        return {"timings": [self._timing_data(timing) for timing in self.timings], "skipped": skips}

    def _timing_data(self, timing: Timing) -> dict[str, Any]:
        share, ratio = self.share(timing), self.ratio(timing)
        return {
            "task": timing.task,
            "who": timing.who,
            **timing.shape.as_data(),
            "median_ms": timing.median_ms,
            "fastest_ms": timing.fastest_ms,
            "slowest_ms": timing.slowest_ms,
            "sustained_ms": timing.sustained_ms,
            "flops": timing.flops,
            "extra_mib": timing.extra_mib,
            "gflops": round(timing.gflops, 2),
            "of_matmul": None if share is None else round(share, 4),
            "of_v4gen": None if ratio is None else round(ratio, 4),
        }


@dataclass(frozen=True)
class Job:
    """Something to time: a call that has run before, what it costs, and how many of them make a burst."""

    task: str
    who: str
    call: Callable[[], Any]
    flops: int
    extra_mib: float
    burst: int


def bench_package(
    folder: Path,
    spec: "Spec",
    device: str,
    shapes: Sequence[Shape],
    rivals: Sequence[str] = (),
    sustained_seconds: float = 0,
    after_shape: Callable[[Contest], None] | None = None,
) -> Contest:
    """Scores, selection, whole forward and backward of the package in `folder`, and the same of `rivals`, at `shapes`.

    The matrix product is torch's: on the CPU in float32 on one thread, as the kernels are; else in the spec's dtype.
    A rival is timed only at what it gives the package's own results of. `after_shape` gets what was found so far, a
    shape at a time: a run is long, and what it has measured is not to be lost with it.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1 if device == "cpu" else threads)
    timings: list[Timing] = []
    skips: list[Skip] = []
    try:
        with imported_package(folder) as package, quiet():
            for shape in shapes:
                found = _bench_shape(package, spec, device, shape, rivals, sustained_seconds)
                timings += found.timings
                skips += found.skips
                _free(device)
                if after_shape:
                    after_shape(Contest(tuple(timings), tuple(skips)))
    finally:
        torch.set_num_threads(threads)
    return Contest(tuple(timings), tuple(skips))


def _bench_shape(
    package: Package, spec: "Spec", device: str, shape: Shape, rivals: Sequence[str], sustained_seconds: float
) -> Contest:
    try:
        problem = Problem(spec, shape, device)
    except Unfit as error:
        return Contest((), (Skip(EVERY_TASK, OURS, shape, str(error)),))
    jobs, skips = _line_up(package, problem, rivals)
    return Contest(tuple(_time_all(jobs, shape, device, sustained_seconds)), tuple(skips))


def _line_up(package: Package, problem: Problem, rivals: Sequence[str]) -> tuple[list[Job], list[Skip]]:
    """Everybody's tasks on the problem, each run twice; the package's own may fail as Unfit alone."""
    answers = Answers(package, problem)
    jobs, skips = [_matmul_job(problem)], []
    for task, call in answers.tasks().items():
        try:
            jobs.append(_job(task, OURS, call, problem))
        except Unfit as error:
            skips.append(Skip(task, OURS, problem.shape, str(error)))
    for who in rivals:
        tasks, reason = _attempt(partial(RIVALS[who].tasks, problem, answers), problem.device)
        if tasks is None:
            skips.append(Skip(EVERY_TASK, who, problem.shape, reason))
        for task, call in (tasks or {}).items():
            job, reason = _attempt(partial(_admitted, task, who, call, problem, answers), problem.device)
            if job is None:
                skips.append(Skip(task, who, problem.shape, reason))
            else:
                jobs.append(job)
    return jobs, skips


def _admitted(task: str, who: str, call: Callable[[], Any], problem: Problem, answers: Answers) -> Job:
    """The job of a rival's task; raises Unfit where it does other work than the package."""
    if wrong := disagreement(task, call(), problem, answers):
        raise Unfit(f"wrong: {wrong}")
    return _job(task, who, call, problem)


def _attempt(work: Callable[[], _T], device: str) -> tuple[_T | None, str]:
    """What a rival's code gives, or None and why it gives nothing: its faults are not the run's."""
    import torch

    try:
        return work(), ""
    except Unfit as error:
        reason = str(error)
    except (torch.OutOfMemoryError, MemoryError):
        reason = "out of memory"
    except Exception as error:
        reason = " ".join(f"raised {type(error).__name__}: {error}".split())
    _free(device)  # what the traceback held
    return None, reason


def _free(device: str) -> None:
    if device == "cuda":
        import torch

        torch.cuda.empty_cache()


def _matmul_job(problem: Problem) -> Job:
    import torch

    size = MATMUL_SIZE[problem.device]
    dtype = torch.float32 if problem.device == "cpu" else problem.dtype
    matrix = torch.randn(size, size, device=problem.device).to(dtype)
    return _job(MATMUL, "torch", lambda: matrix @ matrix, problem)


def _flops(task: str, problem: Problem) -> int:
    spec, shape = problem.spec, problem.shape
    counts: Mapping[str, int] = {
        "kernel": scores_flops(spec.heads, spec.dim, shape.pairs),
        "scores": scores_flops(spec.heads, spec.dim, shape.pairs),
        "forward": scores_flops(spec.heads, spec.dim, shape.pairs),
        "backward": backward_flops(spec.heads, spec.dim, shape.selected),
        "reproducible backward": backward_flops(spec.heads, spec.dim, shape.selected),
        MATMUL: 2 * MATMUL_SIZE[problem.device] ** 3,
    }
    return counts.get(task, 0)


def _job(task: str, who: str, call: Callable[[], Any], problem: Problem) -> Job:
    """Run the call twice: once to compile, once to see its memory and how many of it make a burst."""
    device = problem.device
    call()
    extra, milliseconds = _rehearse(call, device)
    burst = 1 if device == "cpu" else max(1, round(BURST_SECONDS * 1e3 / milliseconds))
    return Job(task, who, call, _flops(task, problem), extra, burst)


def _rehearse(call: Callable[[], Any], device: str) -> tuple[float, float]:
    """MiB at the peak of a call beyond what it returns (-1 on the CPU, where torch does not count), and its time."""
    if device == "cpu":
        return -1.0, _time(call, 1, device)
    import torch

    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    result = call()
    torch.cuda.synchronize()
    milliseconds = (time.perf_counter() - start) * 1e3
    peak, kept = torch.cuda.max_memory_allocated(), torch.cuda.memory_allocated() - before
    del result
    return float(peak - before - kept) / MIB, milliseconds


def _time_all(jobs: Sequence[Job], shape: Shape, device: str, sustained_seconds: float) -> list[Timing]:
    """A burst of each job in turn, round by round."""
    rounds = [[_time(job.call, job.burst, device) for job in jobs] for _ in range(ROUNDS[device])]
    timings = []
    for job, *times in zip(jobs, *rounds, strict=True):
        fastest, sustained = min(times), 0.0
        if sustained_seconds:
            sustained = _time(job.call, max(1, round(sustained_seconds * 1e3 / fastest)), device, rest=False)
        spread = (statistics.median(times), fastest, max(times))
        timings.append(Timing(job.task, job.who, shape, *spread, sustained, job.flops, job.extra_mib))
    return timings


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
    if count > 1:
        call()  # so that the first timed launch finds the card awake; a long call hardly notices
    begin.record()
    for _ in range(count):
        call()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) / count
