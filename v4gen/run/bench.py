"""Time the kernels of a package beside its rivals and a matrix product, interleaved, in one run on random data."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from v4gen.run.agreement import disagreement
from v4gen.run.answers import Answers
from v4gen.run.burst import Sustained, rehearse, threads_for, time_burst, time_on_end
from v4gen.run.contest import Problem, Shape, Unfit
from v4gen.run.lower import quiet
from v4gen.run.package import Package, imported_package
from v4gen.run.power import Meter
from v4gen.run.rivals import RIVALS
from v4gen.run.timing import CEILING, COPY, EVERY_TASK, MATMUL, OURS, Contest, Skip, Timing
from v4gen.run.work import Work, work_of

if TYPE_CHECKING:
    from v4gen.read.spec import Spec

_T = TypeVar("_T")

ROUNDS = {"cpu": 9, "cuda": 7}
MATMUL_SIZE = {"cpu": 1024, "cuda": 8192}
COPY_BYTES = {"cpu": 1 << 28, "cuda": 1 << 30}  # far beyond the caches of either

AfterShape = Callable[[Contest, Shape], None]


@dataclass(frozen=True)
class Course:
    """What is run at each shape: tasks by name (all of them if there are none), rivals, and how long calls on end.

    With a `target` the package's kernels for that one run, even where it has others for the device.
    """

    tasks: Sequence[str] = ()
    rivals: Sequence[str] = ()
    sustained_seconds: float = 0
    target: str | None = None

    def takes(self, task: str) -> bool:
        return not self.tasks or task in self.tasks


@dataclass(frozen=True)
class Job:
    """Something to time: a call that has run before, what it costs, and how many of them make a burst."""

    task: str
    who: str
    call: Callable[[], Any]
    work: Work
    extra_mib: float
    burst: int


def bench_package(
    folder: Path,
    spec: "Spec",
    device: str,
    shapes: Sequence[Shape],
    course: Course = Course(),
    meter: Meter | None = None,
    after_shape: AfterShape | None = None,
) -> Contest:
    """The tasks of the package in `folder` (see `Answers.tasks`), and the same of rivals, at `shapes`.

    The ceilings are torch's matrix product and copy: on the CPU on one thread, as the kernels are, and the product in
    float32; else in the spec's dtype. A rival is timed only at what it gives the package's own results of. A `meter`
    tells the energy of calls on end. `after_shape` gets what was found so far, and the shape that came last: a run
    is long, and what it has measured is not to be lost with it. Raises NoKernels if the package has none for the
    device.
    """
    timings: list[Timing] = []
    skips: list[Skip] = []
    with threads_for(device), imported_package(folder, course.target) as package, quiet():
        target = package.target_for(device)
        for shape in shapes:
            found = _bench_shape(package, spec, device, shape, course, meter)
            timings += found.timings
            skips += found.skips
            _free(device)
            if after_shape:
                after_shape(Contest(tuple(timings), tuple(skips), target), shape)
    return Contest(tuple(timings), tuple(skips), target)


def _bench_shape(
    package: Package, spec: "Spec", device: str, shape: Shape, course: Course, meter: Meter | None
) -> Contest:
    try:
        problem = Problem(spec, shape, device)
    except Unfit as error:
        return Contest((), (Skip(EVERY_TASK, OURS, shape, str(error)),))
    jobs, skips = _line_up(package, problem, course)
    return Contest(tuple(_time_all(jobs, shape, device, course.sustained_seconds, meter)), tuple(skips))


def _line_up(package: Package, problem: Problem, course: Course) -> tuple[list[Job], list[Skip]]:
    """Everybody's tasks on the problem, each run twice; the package's own may fail as Unfit or out of memory alone."""
    import torch

    answers = Answers(package, problem)
    jobs, skips = _ceilings(problem), []
    for task, call in answers.tasks().items():
        if course.takes(task):
            try:
                jobs.append(_job(task, OURS, call, work_of(task, problem), problem.device))
            except Unfit as error:
                skips.append(Skip(task, OURS, problem.shape, str(error)))
            except (torch.OutOfMemoryError, MemoryError):
                skips.append(Skip(task, OURS, problem.shape, "out of memory"))
                _free(problem.device)
    for who in course.rivals:
        tasks, reason = _attempt(partial(RIVALS[who].tasks, problem, answers), problem.device)
        if tasks is None:
            skips.append(Skip(EVERY_TASK, who, problem.shape, reason))
        for task, call in (tasks or {}).items():
            if not course.takes(task):
                continue
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
    return _job(task, who, call, work_of(task, problem), problem.device)


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


def _ceilings(problem: Problem) -> list[Job]:
    """What no kernel can beat by much: a large product, and a copy, whose bytes are read once and written once."""
    import torch

    device = problem.device
    size = MATMUL_SIZE[device]
    matrix = torch.randn(size, size, device=device).to(torch.float32 if device == "cpu" else problem.dtype)
    source = torch.randn(COPY_BYTES[device] // 4, device=device)
    target = torch.empty_like(source)
    product = Work(2 * size**3, 3 * matrix.nbytes)
    return [
        _job(MATMUL, CEILING, lambda: matrix @ matrix, product, device),
        _job(COPY, CEILING, lambda: target.copy_(source), Work(0, 2 * source.nbytes), device),
    ]


def _job(task: str, who: str, call: Callable[[], Any], work: Work, device: str) -> Job:
    """Run the call twice: once to compile, once to see its memory and how many of it make a burst."""
    call()
    rehearsal = rehearse(call, device)
    return Job(task, who, call, work, rehearsal.extra_mib, rehearsal.burst(device))


def _time_all(
    jobs: Sequence[Job], shape: Shape, device: str, sustained_seconds: float, meter: Meter | None
) -> Iterator[Timing]:
    """A burst of each job in turn, round by round, so that a drift of the device meets all of them alike."""
    rounds = [[time_burst(job.call, job.burst, device) for job in jobs] for _ in range(ROUNDS[device])]
    for job, *times in zip(jobs, *rounds, strict=True):
        on_end = Sustained()
        if sustained_seconds:
            count = max(1, round(sustained_seconds * 1e3 / min(times)))
            on_end = time_on_end(job.call, count, device, meter)
        yield Timing(
            task=job.task,
            who=job.who,
            shape=shape,
            median_ms=statistics.median(times),
            fastest_ms=min(times),
            slowest_ms=max(times),
            sustained_ms=on_end.milliseconds,
            flops=job.work.flops,
            bytes=job.work.bytes,
            extra_mib=job.extra_mib,
            energy_mj=on_end.energy_mj,
            sm_mhz=on_end.sm_mhz,
        )
