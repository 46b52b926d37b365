"""The whole of v4gen on one screen: read → plan → emit → run.

    spec ──read──▶ Spec ──plan──▶ Plan ──emit──▶ Package (path → text)        pure
                                                    │
             generate: write it    check: compare it    build: write, compile, validate

Every verb is `generate` plus one effect. The stages after emit need torch and tilelang and load them when called.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from v4gen.diagnostic import Diagnostic, DiagnosticError, Severity
from v4gen.emit.compare import FileDrift
from v4gen.emit.drift import find_drift
from v4gen.emit.package import Package, emit_packages
from v4gen.emit.update import Outcome, Policy, changes_due, update
from v4gen.plan.plan import Plan, make_plan
from v4gen.read.reader import read_specs
from v4gen.read.spec import Spec

if TYPE_CHECKING:
    from v4gen.run.compile import KernelReport
    from v4gen.run.evidence import Validation
    from v4gen.run.validate import Progress


def plan_specs(specs: Sequence[Spec]) -> tuple[Plan, ...]:
    """The plans of `specs`. Raises DiagnosticError with the findings of all of them."""
    plans: list[Plan] = []
    problems: list[Diagnostic] = []
    for spec in specs:
        try:
            plans.append(make_plan(spec))
        except DiagnosticError as error:
            problems.extend(error.diagnostics)
    if problems:
        raise DiagnosticError(problems)
    return tuple(plans)


def emit(paths: Sequence[Path]) -> tuple[tuple[Spec, ...], tuple[Package, ...]]:
    """The specs in `paths` and the packages that they give: the pure function behind every verb."""
    specs = read_specs(paths)
    return specs, emit_packages(plan_specs(specs))


def generate(
    packages: Sequence[Package], output: Path, policy: Policy = Policy.REFUSE, *, complete: bool = False
) -> Outcome:
    """Write `packages` and their lock below `output`; with `complete`, remove what v4gen left there of any other."""
    return update(packages, output, policy, complete=complete)


def check(packages: Sequence[Package], output: Path, *, complete: bool) -> tuple[FileDrift, ...]:
    """What below `output` differs from `packages` and their lock; with `complete`, what belongs to none of them too."""
    from v4gen.run.record import toolchain

    return find_drift(packages, output, toolchain(), complete=complete)


def compare_kernels(drift: Sequence[FileDrift], packages: Sequence[Package], output: Path) -> tuple[FileDrift, ...]:
    """`drift`, with each changed module cosmetic or semantic by the kernels that TileLang traces from it."""
    from v4gen.run.trace import classify

    return classify(drift, packages, output)


def write_patch(patch: Path, packages: Sequence[Package], output: Path, root: Path, *, complete: bool) -> None:
    """Write to the file `patch` what `git apply` in `root` takes to make `output` clean."""
    from v4gen.report.patch import render_patch

    data = render_patch(changes_due(packages, output, complete=complete), root)
    try:
        patch.write_bytes(data)
    except OSError as error:
        problem = f"cannot write `{patch.as_posix()}`: {error.strerror}"
        raise DiagnosticError([Diagnostic(Severity.ERROR, "cannot-write", problem)]) from error


def compile_kernels(
    executor: Executor | None, spec: Spec, folder: Path, targets: Sequence[str], nvcc: Path | None
) -> "Iterator[KernelReport]":
    """Reports of the kernels of `spec`'s package in `folder` for `targets`; of reproducible sums if it asks for them.

    With an `executor` its processes are at work from now on, while the caller does something else.
    """
    if executor is None:
        return (report for target in targets for report in _compile(spec, folder, target, nvcc))
    pending = [executor.submit(_compile, spec, folder, target, nvcc) for target in targets]
    return (report for future in pending for report in future.result())


def _compile(spec: Spec, folder: Path, target: str, nvcc: Path | None) -> "list[KernelReport]":
    from v4gen.run.compile import compile_package

    return list(compile_package(folder, [target], nvcc, reproducible=spec.backward.deterministic))


def validate(spec: Spec, folder: Path, device: str, progress: "Progress | None" = None) -> "Validation":
    """Hold the package in `folder`, as it is on disk, against the reference for `spec`."""
    from v4gen.run.validate import validate_packages

    return next(validate_packages([(spec, folder)], device, progress))


def validate_each(
    packages: Sequence[tuple[Spec, Path]],
    device: str,
    progress: "Progress",
    *,
    target: str | None,
    jobs: int,
    time_limit: float,
) -> "Iterator[Validation]":
    """`validate` each package, `jobs` at a time; a case that takes longer than `time_limit` seconds fails.

    With a `target` the kernels of that one run, even where the package has others for the device.
    """
    from v4gen.run.validate import validate_packages

    return validate_packages(packages, device, progress, target=target, jobs=jobs, time_limit=time_limit)


def proof(name: str, output: Path, device: str) -> Callable[[str], None]:
    """A function to call once the package `name`, as it is on disk now, is proved on `device`: it tells the lock.

    Its argument is the digest of the record that says so, or empty. The lock is told nothing about edited files.
    """
    from v4gen.emit.evidence import code_on_disk, record_evidence
    from v4gen.emit.lock import Evidence
    from v4gen.run.record import toolchain

    code = code_on_disk(output, name)

    def proved(record: str) -> None:
        record_evidence(output, name, Evidence(code, device, toolchain(), record))

    return proved


@contextmanager
def processes(jobs: int | None) -> Iterator[Executor | None]:
    """Worker processes beside this one, `jobs` in all (by default one a core); None for one job."""
    workers = (jobs or os.cpu_count() or 1) - 1
    if workers < 1:
        yield None
        return
    # Spawned, not forked: torch's and TileLang's threads do not survive a fork.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as executor:
        yield executor
