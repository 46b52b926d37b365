"""v4gen tune: which schedules are fastest. Options are pruned by the plan's model, then by the compiler, then timed.

    options ──budget──▶ admitted ──compile──▶ no spills ──agreement, race──▶ pick ──validate──▶ the spec

The first two need no GPU, and what they found is kept in a log: a machine with one goes on from there.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from v4gen.digest import digest_data
from v4gen.emit.package import emit_packages
from v4gen.emit.provenance import provenance
from v4gen.emit.write import write_package
from v4gen.plan.plan import make_plan
from v4gen.plan.space import options
from v4gen.plan.target import TARGETS, Target
from v4gen.run.agreement import disagreement
from v4gen.run.answers import Answers
from v4gen.run.burst import rehearse, threads_for
from v4gen.run.contest import Problem, Shape, Unfit
from v4gen.run.crew import Task, compiled
from v4gen.run.lower import quiet
from v4gen.run.package import Package, imported_package
from v4gen.run.race import Entrant, Lap, race, winner
from v4gen.run.record import machine, toolchain
from v4gen.run.trial import Fate, Log, Pick, Trial

if TYPE_CHECKING:
    from v4gen.read.spec import Spec

# What is timed of each kernel; before that its results are held against those of the plan's own package.
TIMED = {"scores": "kernel", "select": "select", "backward": "backward"}
# Of the time that is left when timing begins, the share in which entrants are looked at; the rest is for the race.
ADMISSION = 0.5
ENDED = "the search ended while it ran"
COMPILING = 0.6  # share of the budget, where there is a device to time on

Keep = Callable[[Log], None]
Progress = Callable[[str, int, int], None]


class Deadline:
    """So many seconds from now on."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        return max(0.0, self._end - time.monotonic())

    def expired(self) -> bool:
        return self.left == 0

    def share(self, fraction: float) -> "Deadline":
        """The first part of what is left."""
        return Deadline(self.left * fraction)


@dataclass(frozen=True)
class Search:
    """One search: where packages of trials are written, what compiles them, and who hears of each step."""

    spec: "Spec"
    target: Target
    folder: Path
    nvcc: Path | None
    workers: int
    keep: Keep
    progress: Progress

    def package(self, trial: Trial) -> Path:
        """The folder of a package with the trial's schedule, written at the first call."""
        pins = "_".join(str(size) for size in trial.pins.values())
        folder = self.folder / f"{next(iter(trial.pins)).partition('_')[0]}_{len(trial.pins)}_{pins}"
        if not folder.exists():
            write_pinned(self.spec, self.target, trial.pins, folder)
        return folder


def write_pinned(spec: "Spec", target: Target, pins: Mapping[str, int], folder: Path) -> None:
    """Write the package of `spec` for `target` alone, with these pins, into `folder`."""
    pinned = {target.name: dict(pins)} if pins else {}
    plan = make_plan(spec.model_copy(update={"targets": (target.name,), "schedule": pinned}))
    (package,) = emit_packages([plan])
    write_package(package, folder)


def basis(spec: "Spec") -> dict[str, str]:
    """What a search is about: what kernels are made from. Those of another basis say nothing about these."""
    values = spec.model_dump(
        mode="json", exclude_defaults=True, exclude={"schedule", "description", "origin", "targets"}
    )
    templates = provenance(make_plan(spec.model_copy(update={"schedule": {}}))).templates
    return {"spec": digest_data(values), "templates": templates, "tilelang": toolchain().get("tilelang", "")}


def tune(search: Search, log: Log, device: str | None, shapes: Sequence[Shape], seconds: float) -> Log:
    """The whole search, from where `log` is, in about so many seconds.

    Without a `device` that runs the target's kernels they are compiled only. Raises Unfit where the plan's own kernels
    cannot be timed at a shape.
    """
    deadline = Deadline(seconds)
    compiling = deadline.share(COMPILING) if device else deadline
    log = compile_trials(search, log, compiling, to_run=device is not None)
    return time_trials(search, log, device, shapes, deadline) if device else log


def picked_package(search: Search, log: Log) -> Path:
    """The folder of a package, written now, with everything that was picked, and the spec's pins of other kernels."""
    folder = search.folder / "picked"
    write_pinned(search.spec, search.target, pins_after(log, search.spec), folder)
    return folder


def refuted(log: Log) -> Log:
    """The log once the package of its picks has failed its validation: they are out, and nothing is picked."""
    reason = "the package of the picks does not validate"
    wrong = [pick.pins for pick in log.picks.values() if not pick.is_default]
    trials = tuple(replace(t, fate=Fate.WRONG, reason=reason) if t.pins in wrong else t for t in log.trials)
    return replace(log, trials=trials, picks={})


def new_log(spec: "Spec", target: Target) -> Log:
    """Every option of the target's kernels, nothing compiled."""
    trials = tuple(Trial.of(option) for found in options(spec, target).values() for option in found)
    return Log(spec.name, target.name, basis(spec), trials, {}, (), {})


def compile_trials(search: Search, log: Log, deadline: Deadline, *, to_run: bool) -> Log:
    """Compile what waits, the likeliest of each kernel first, until the time is up; every result is kept at once.

    The plan's own schedules are compiled whatever the time. With `to_run` those that were compiled elsewhere are made
    ready too.
    """
    trials = list(log.trials)
    wanted = (Fate.WAITING, Fate.COMPILED) if to_run and not search.target.is_cpu else (Fate.WAITING,)
    waiting = [n for n in _in_turn(trials) if trials[n].fate in wanted]
    firsts = {next(n for n, trial in enumerate(trials) if trial.kernel == kernel) for kernel in _kernels(trials)}

    def tasks() -> Iterator[tuple[int, Task]]:
        for n in waiting:
            if n in firsts or not deadline.expired():
                # What was compiled elsewhere has been looked at, and needs to be made ready only.
                nvcc = search.nvcc if trials[n].fate is Fate.WAITING else None
                yield n, (search.package(trials[n]), trials[n].kernel, search.target.name, nvcc)

    def patience(n: int) -> float | None:
        return None if n in firsts else deadline.left

    for done, (n, report) in enumerate(compiled(tasks(), search.workers, patience, to_run=to_run)):
        trials[n] = trials[n].compiled(report)
        search.progress(f"compiling {trials[n].kernel}", done, len(waiting))
        log = replace(log, trials=tuple(trials))
        search.keep(log)
    return log


def _kernels(trials: Sequence[Trial]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(trial.kernel for trial in trials))


def _in_turn(trials: Sequence[Trial]) -> list[int]:
    """Positions, one of each kernel in turn."""
    by_kernel = [[n for n, trial in enumerate(trials) if trial.kernel == kernel] for kernel in _kernels(trials)]
    return [n for row in zip_longest(*by_kernel) for n in row if n is not None]


def time_trials(search: Search, log: Log, device: str, shapes: Sequence[Shape], deadline: Deadline) -> Log:
    """Race the compiled trials of each kernel against the plan's own schedule, and pick; nothing where it is alone.

    An entrant that gives other results than the plan's own package is out. Raises Unfit where that package cannot run
    at a shape.
    """
    kernels = _kernels(log.trials)
    log = replace(
        log,
        trials=tuple(trial.untimed() for trial in log.trials),
        machine=machine(device),
        shapes=tuple(map(str, shapes)),
        picks={},
    )
    with ExitStack() as stack:
        stack.enter_context(threads_for(device))
        own = search.folder / "own"
        write_pinned(search.spec, search.target, {}, own)
        package = stack.enter_context(imported_package(own))
        stack.enter_context(quiet())  # of TileLang's loggers, which the package has loaded
        answers = [Answers(package, Problem(search.spec, shape, device)) for shape in shapes]
        for own_answers in answers:
            own_answers.prepare()
        for position, kernel in enumerate(kernels):
            share = deadline.share(1 / (len(kernels) - position))
            search.progress(f"timing {kernel}", position, len(kernels))
            log = _time_kernel(search, log, kernel, answers, device, share)
            search.keep(log)
    return log


def _time_kernel(
    search: Search, log: Log, kernel: str, answers: Sequence[Answers], device: str, deadline: Deadline
) -> Log:
    trials = list(log.trials)
    default = next(n for n, trial in enumerate(trials) if trial.kernel == kernel)
    if trials[default].reason == ENDED:  # without it there is nothing to time others beside: it is tried again
        trials[default] = replace(trials[default], fate=Fate.COMPILED, reason="")
    ready = [n for n, trial in enumerate(trials) if trial.kernel == kernel and trial.fate is Fate.COMPILED]
    if default not in ready:
        what = "does not compile" if trials[default].fate is Fate.FAILED else f"is {trials[default].fate}"
        raise Unfit(f"the plan's own {kernel} kernel {what}: {trials[default].reason}")
    with ExitStack() as stack:
        entrants: list[Entrant] = []
        looking = deadline.share(ADMISSION)
        for n in ready:
            if looking.expired() and n != default:
                trials[n] = replace(trials[n], reason="not timed: the time was up")
                continue
            # Whoever ends this process, or hangs it, is not tried again when the search goes on.
            trials[n] = replace(trials[n], fate=Fate.WRONG, reason=ENDED)
            search.keep(replace(log, trials=tuple(trials)))
            package = stack.enter_context(imported_package(search.package(trials[n])))
            try:
                laps, wrong = _laps(package, kernel, answers, device)
            except KeyboardInterrupt:  # a person's doing, not the schedule's
                trials[n] = replace(trials[n], fate=Fate.COMPILED, reason="")
                search.keep(replace(log, trials=tuple(trials)))
                raise
            if wrong:
                trials[n] = replace(trials[n], fate=Fate.WRONG, reason=wrong)
            else:
                trials[n] = replace(trials[n], fate=Fate.COMPILED, reason="")
                entrants.append(Entrant(n, laps))
        if not entrants or entrants[0].number != default:
            raise Unfit(f"the plan's own {kernel} kernel is wrong: {trials[default].reason}")
        first = entrants[0]
        if len(entrants) == 1:
            trials[default] = replace(trials[default], reason="not timed: there was no other to time beside it")
            return replace(log, trials=tuple(trials))
        result = race(entrants, device, deadline.expired)
    for entrant in (*result.dropped, *result.finalists):
        trials[entrant.number] = _timed(trials[entrant.number], entrant, first, final=entrant in result.finalists)
    best = winner(result, first)
    trials[best.number] = replace(trials[best.number], fate=Fate.PICKED)
    pick = _pick(trials, best, first, result.finalists)
    return replace(log, trials=tuple(trials), picks=dict(log.picks) | {kernel: pick})


def _laps(package: Package, kernel: str, answers: Sequence[Answers], device: str) -> tuple[list[Lap], str]:
    """The entrant's calls, or what is wrong about their results."""
    import torch

    laps = []
    for own in answers:
        try:
            theirs = own.of(package)
            found = theirs.tasks()[kernel]()
            wrong = (
                _other_selection(found, own) if kernel == "select" else disagreement(kernel, found, own.problem, own)
            )
            if wrong:
                return [], f"{wrong}, {own.problem.shape}"
            del found
            call = theirs.tasks()[TIMED[kernel]]
            call()
            laps.append(Lap(call, rehearse(call, device).burst(device)))
        except (torch.OutOfMemoryError, MemoryError):
            return [], "out of memory"
        except Unfit:
            raise
        except Exception as error:  # a schedule that nobody tried: anything may come out
            _require_device(device, error)
            return [], " ".join(f"raised {type(error).__name__}: {error}".split())
    return laps, ""


def _require_device(device: str, error: Exception) -> None:
    """Raise Unfit where a fault of a kernel has taken the device from this process."""
    import torch

    if device == "cuda":
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            raise Unfit(f"a schedule broke the device ({error}): run again, its log leaves that one out") from error


def _other_selection(found: Any, own: Answers) -> str:
    """A selection is a function of the scores alone: from the same scores the same bits."""
    import torch

    expected = own.select()
    same = all(torch.equal(theirs, ours) for theirs, ours in zip(found, expected, strict=True))
    return "" if same else "another selection from the same scores"


def _timed(trial: Trial, entrant: Entrant, first: Entrant, *, final: bool) -> Trial:
    slower = entrant.median / first.median - 1
    return replace(
        trial,
        fate=Fate.FINALIST if final else Fate.SLOWER,
        reason=f"{slower:+.1%} beside the plan's own" if final else "dropped in the first rounds",
        median_ms=entrant.median,
        fastest_ms=entrant.fastest,
        slowest_ms=entrant.slowest,
    )


def _pick(trials: Sequence[Trial], best: Entrant, first: Entrant, finalists: Sequence[Entrant]) -> Pick:
    others = [entrant for entrant in finalists if entrant is not best]
    runner_up = others[0] if others else None
    return Pick(
        pins=trials[best.number].pins,
        is_default=best is first,
        over_default=first.median / best.median - 1,
        over_runner_up=runner_up.median / best.median - 1 if runner_up else 0.0,
        runner_up=trials[runner_up.number].pins if runner_up else {},
    )


def pins_after(log: Log, spec: "Spec") -> dict[str, int]:
    """The pins of the spec for the log's target, after the search: those of a kernel without a pick stay."""
    present: Mapping[str, int] = next((sizes for target, sizes in spec.schedule.items() if target == log.target), {})
    kept = {name: size for name, size in present.items() if name.partition("_")[0] not in log.picks}
    return kept | pins_of_picks(log)


def pins_of_picks(log: Log) -> dict[str, int]:
    """The pins that ask for the picks: none for a kernel whose own schedule is the fastest."""
    return {name: size for pick in log.picks.values() if not pick.is_default for name, size in pick.pins.items()}


def target_of_gpu() -> str | None:
    """The target that this machine's GPU runs, or None where torch sees none or v4gen has none for it."""
    import torch

    if not torch.cuda.is_available():
        return None
    major, minor = torch.cuda.get_device_capability()
    own = next((name for name in TARGETS if name.removesuffix("a") == f"sm_{major}{minor}"), None)
    return own or next((name for name, target in TARGETS.items() if target.is_portable and major >= 8), None)
