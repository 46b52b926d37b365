"""Hold a package on disk against the oracle, case by case; whatever a case raises is that case's failure."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from v4gen.run.case import Case
from v4gen.run.cases import case_matrix, selection_cases
from v4gen.run.evidence import CaseResult, Measurement, Validation

if TYPE_CHECKING:
    from v4gen.read.spec import Spec
    from v4gen.run.package import Package

Progress = Callable[[str, int, int], None]
"""Called before each case with its name, its position from 0 and the number of cases."""

_Trial = tuple[str, str, Callable[[], Iterable[Measurement]]]


def validate_package(
    package_dir: Path, spec: Spec, device: str = "cpu", progress: Progress | None = None
) -> Validation:
    """Run every case of `spec` on the package in `package_dir`, as it is on disk, on `device`.

    A package that cannot be imported, and a case that raises, are failed cases of the result; nothing is raised for
    them. The package's own code runs in this process.
    """
    from v4gen.run.lower import quiet
    from v4gen.run.package import imported_package

    start = time.perf_counter()
    try:
        with imported_package(package_dir) as package, _one_thread(), quiet():
            trials = tuple(_trials(package, spec, device))
            results = []
            for position, (name, description, trial) in enumerate(trials):
                if progress is not None:
                    progress(name, position, len(trials))
                results.append(_tried(name, description, trial))
    except Exception as error:  # the package's own code: anything may come out of its import
        seconds = time.perf_counter() - start
        results = [CaseResult("import", str(package_dir.name), (), seconds, error=_message(error))]
    return Validation(spec.name, device, tuple(results))


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


def _trials(package: Package, spec: Spec, device: str) -> Iterator[_Trial]:
    from v4gen.run import checks, contract, parts
    from v4gen.run.subject import Subject

    def trial(name: str, case: Case, measure: Callable[[Subject], Iterable[Measurement]]) -> _Trial:
        return name, case.description, lambda: measure(Subject.of(package, spec, case, device))

    for case in case_matrix(spec):
        yield trial(case.name, case, checks.measure)
    for case in selection_cases(spec):
        yield trial(case.name, case, checks.measure_selection)
    cut = parts.parts_case(spec)
    if cut is not None:
        yield trial(cut.name, cut, parts.measure_parts)
    small = contract.contract_case(spec)
    yield trial("autograd contract", small, contract.measure_autograd)
    yield trial("bad input", small, contract.measure_refusals)


def _tried(name: str, description: str, trial: Callable[[], Iterable[Measurement]]) -> CaseResult:
    start = time.perf_counter()
    measurements: list[Measurement] = []
    message = ""
    try:
        measurements.extend(trial())
    except Exception as error:  # the package's own code: its failure is the case's, not ours
        message = _message(error)
    return CaseResult(name, description, tuple(measurements), time.perf_counter() - start, error=message)


def _message(error: Exception) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
