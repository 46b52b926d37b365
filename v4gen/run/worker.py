"""The process that validates one package: it tries case after case, and sends what it found after each.

It lets the package's own code do to it what it will; whoever started it tells from how far it came which case it was.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import parent_process
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from v4gen.run.case import Case
from v4gen.run.cases import case_matrix, selection_cases
from v4gen.run.evidence import CaseResult, Measurement

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from v4gen.read.spec import Spec
    from v4gen.run.package import Package
    from v4gen.run.subject import Subject


@dataclass(frozen=True)
class Listed:
    """The package is imported and takes `target`, and these are its cases: name and description of each."""

    cases: tuple[tuple[str, str], ...]
    target: str


@dataclass(frozen=True)
class Refused:
    """The package cannot be imported."""

    error: str


@dataclass(frozen=True)
class Spent:
    """A CUDA error stays with this process: it ends, and the cases after the last result need another."""


@dataclass(frozen=True)
class Trial:
    """One case to be tried on a package."""

    name: str
    description: str
    measure: Callable[[], Iterable[Measurement]]

    def run(self, *, stop_at_failure: bool = False) -> CaseResult:
        """What the case measures; an exception is its failure, with what was measured before.

        With `stop_at_failure` the first measurement that fails is the last.
        """
        start = time.perf_counter()
        measurements: list[Measurement] = []
        message = ""
        try:
            for measurement in self.measure():
                measurements.append(measurement)
                if stop_at_failure and not measurement.passed:
                    break
        except Exception as error:  # the package's own code: its failure is the case's, not ours
            message = describe(error)
        return CaseResult(self.name, self.description, tuple(measurements), time.perf_counter() - start, message)


@contextmanager
def opened_trials(
    package_dir: Path, spec: Spec, device: str, target: str | None = None
) -> Iterator[tuple[str, tuple[Trial, ...]]]:
    """The target that the package in `package_dir`, as it is on disk, takes, and every trial of `spec` on it.

    They can be run inside the context. With a `target` no other is taken. The package's code runs in this process.
    Raises FileNotFoundError where there is no package, NoKernels where it has none for `device`, and whatever
    its import raises.
    """
    from v4gen.run.lower import quiet
    from v4gen.run.package import imported_package

    with imported_package(package_dir, target) as package, _one_thread(), quiet():
        yield package.target_for(device), tuple(_trials(package, spec, device))


def work(
    messages: Connection,
    package_dir: Path,
    spec: Spec,
    device: str,
    target: str | None,
    first: int,
    stop_at_failure: bool,
) -> None:
    """Send Listed, then the CaseResult of each case from `first` on, and end this process.

    Refused is the only message of a package that cannot be imported, and Spent the last one of a process that cannot
    go on.
    """
    os.setsid()  # so that the compilers it starts can be ended with it
    os.dup2(2, 1)  # what packages and compilers print is no result
    Thread(target=_end_with_parent, daemon=True).start()
    try:
        with opened_trials(package_dir, spec, device, target) as (taken, trials):
            messages.send(Listed(tuple((trial.name, trial.description) for trial in trials), taken))
            for trial in trials[first:]:
                result = trial.run(stop_at_failure=stop_at_failure)
                messages.send(result)
                if result.error and device == "cuda" and not _is_usable():
                    messages.send(Spent())
                    break
    except Exception as error:  # the package's own code: anything may come out of its import
        messages.send(Refused(describe(error)))
    os._exit(0)  # the results are sent: what compilers and drivers do at exit is no part of any case


def describe(error: Exception) -> str:
    """The type and the text of an exception."""
    text = str(error).strip()
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _end_with_parent() -> None:
    """End this process and its compilers when the one that started it is gone."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os.killpg(0, signal.SIGKILL)


def _is_usable() -> bool:
    """Whether CUDA still answers: after some errors, such as an illegal address, every call of the process fails."""
    import torch

    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


@contextmanager
def _one_thread() -> Iterator[None]:
    """torch on one thread: the problems are small, and on a busy machine threads that wait on each other cost most."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _trials(package: Package, spec: Spec, device: str) -> Iterator[Trial]:
    import torch

    from v4gen.run import checks, contract, parts, reference, repeat
    from v4gen.run.subject import Subject

    def trial(name: str, case: Case, measure: Callable[[Subject], Iterable[Measurement]]) -> Trial:
        def measured() -> Iterator[Measurement]:
            yield from measure(Subject.of(package, spec, case, device))
            if device == "cuda":  # an error of a kernel that is still running is this case's
                torch.cuda.synchronize()

        return Trial(name, case.description, measured)

    for case in case_matrix(spec):
        yield trial(case.name, case, checks.measure)
    for case in selection_cases(spec):
        yield trial(case.name, case, checks.measure_selection)
    cut = parts.parts_case(spec)
    if cut is not None:
        yield trial(cut.name, cut, parts.measure_parts)
    repeated = repeat.repeated_case(spec)
    yield trial(f"{repeat.RUNS} runs", repeated, repeat.measure_repeats)
    if package.reference is not None:
        for case in reference.reference_cases(spec):
            yield trial(case.name, case, reference.measure_reference)
    small = contract.contract_case(spec)
    yield trial("autograd contract", small, contract.measure_autograd)
    yield trial("bad input", small, contract.measure_refusals)
