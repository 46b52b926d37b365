"""v4gen build: generate, compile and validate packages."""

import sys
from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from .progress import progress
from .session import (
    DRIFT,
    Session,
    device_option,
    failure,
    policy,
    policy_options,
    require_runtime,
    require_targets,
    session_options,
)

if TYPE_CHECKING:
    from v4gen.read.spec import Spec


@click.command("build")
@session_options
@policy_options
@device_option
@click.option("--target", "targets", multiple=True, metavar="TARGET", help="Compile for these, not all of the spec's.")
@click.option("-j", "--jobs", type=click.IntRange(1), help="Processes to work with.  [default: one a core]")
def command(
    arguments: tuple[Path, ...],
    output_folder: Path | None,
    json: bool,
    force: bool,
    merge: bool,
    device: str,
    targets: tuple[str, ...],
    jobs: int | None,
) -> None:
    """Generate the packages of the SPECs, compile their kernels, and validate them.

    Kernels for CUDA are compiled where there is an nvcc, and need no GPU for it; their registers, spills, shared memory
    and matrix instructions are reported. Exits with 1 if a kernel fails to compile or a case of the validation fails.
    """
    session = Session(arguments, json, output_folder)
    with session.errors():
        from v4gen import pipeline

        require_runtime(device)
        specs, packages = pipeline.emit(session.paths)
        nvcc = _nvcc(specs, targets, session)
        outcome = pipeline.generate(packages, session.output, policy(force, merge), complete=not arguments)
        if not json:
            session.console.print(
                f"generated {len(packages)} package{'s' * (len(packages) != 1)}: {len(outcome.written)} files written"
            )
            session.print_remarks(outcome)
        if outcome.conflicts:  # between git's markers a module is no Python: there is nothing to build
            if json:
                session.print_json(outcome.as_data() | {"packages": []})
            sys.exit(DRIFT)
        with pipeline.processes(jobs) as executor:
            outcomes = [_build(session, spec, device, targets or spec.targets, nvcc, executor) for spec in specs]
    if json:
        session.print_json(outcome.as_data() | {"packages": [data for data, _ in outcomes]})
    sys.exit(0 if all(passed for _, passed in outcomes) else DRIFT)


def _nvcc(specs: "Sequence[Spec]", asked: tuple[str, ...], session: Session) -> Path | None:
    """The nvcc to compile with; without one, a warning where a spec wants it and an error where it was asked for."""
    from v4gen.plan.target import TARGETS
    from v4gen.run.toolchain import NVCC_HINT, find_nvcc

    require_targets(specs, asked)
    nvcc = find_nvcc()
    wanted = [target for spec in specs for target in asked or spec.targets if TARGETS[target].is_cuda]
    if nvcc is None and wanted:
        if named := [target for target in asked if TARGETS[target].is_cuda]:
            raise failure("missing-tool", f"nvcc is not there to compile for {named[0]}", NVCC_HINT)
        if not session.json:
            click.echo(f"warning: no nvcc, so CUDA kernels are lowered and not compiled: {NVCC_HINT}", err=True)
    return nvcc


def _build(
    session: Session, spec: "Spec", device: str, targets: Sequence[str], nvcc: Path | None, executor: Executor | None
) -> tuple[dict[str, Any], bool]:
    """Compile and validate one package: its JSON data, and whether all went well."""
    from v4gen import pipeline
    from v4gen.plan.target import TARGETS
    from v4gen.report.kernels import kernel_problems, kernel_table
    from v4gen.report.validation import render_table
    from v4gen.run.lower import kernels_for

    folder = session.output / spec.name
    proved = pipeline.proof(spec.name, session.output, device)
    reports = pipeline.compile_kernels(executor, spec, folder, targets, nvcc)
    with progress(f"validating {spec.name}", quiet=session.json) as show:
        validation = pipeline.validate(spec, folder, device, show)
    kernels = []
    reproducible = spec.backward.deterministic
    count = sum(len(kernels_for(TARGETS[target], reproducible=reproducible)) for target in targets)
    with progress(f"compiling {spec.name}", quiet=session.json) as show:
        for position, report in enumerate(reports):
            kernels.append(report)
            show(f"{report.kernel} for {report.target}", position, count)
    passed = validation.passed and all(report.passed for report in kernels)
    if passed and set(targets) == set(spec.targets):
        proved("")
    if not session.json:
        session.console.print(render_table(validation), kernel_table(spec.name, kernels))
        for problem in kernel_problems(kernels):
            click.secho(f"error: {problem}", fg="red", err=True)
    data = {
        "name": spec.name,
        "passed": passed,
        "kernels": [report.as_data() for report in kernels],
        "validation": validation.as_data(),
    }
    return data, passed
