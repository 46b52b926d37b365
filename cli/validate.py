"""v4gen validate: hold packages, as they are on disk, against the reference."""

import sys
from pathlib import Path

import rich_click as click

from v4gen.run.validate import TIME_LIMIT

from .progress import progress
from .session import (
    DRIFT,
    Session,
    device_option,
    failure,
    require_package,
    require_runtime,
    require_targets,
    session_options,
    target_option,
)


@click.command("validate")
@session_options
@device_option
@target_option
@click.option("--record", type=click.Path(dir_okay=False, path_type=Path), help="Write the evidence of one SPEC here.")
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write it for people: a page (.html), or Markdown for a pull request (.md).",
)
@click.option("-j", "--jobs", type=click.IntRange(1), default=1, show_default=True, help="SPECs to validate at once.")
@click.option(
    "--time-limit",
    type=click.FloatRange(0, min_open=True),
    default=TIME_LIMIT,
    show_default=True,
    metavar="SECONDS",
    help="A case that takes longer fails; its kernels compile in that time.",
)
def command(
    arguments: tuple[Path, ...],
    output_folder: Path | None,
    json: bool,
    device: str,
    target: str | None,
    record: Path | None,
    report: Path | None,
    jobs: int,
    time_limit: float,
) -> None:
    """Hold the packages of the SPECs, as they are on disk, against a float64 reference.

    Each is tried in a process of its own: a case that crashes or hangs is that case's failure.
    Exits with 1 if any case fails. The record holds the device, versions, command, digests and every case's numbers;
    the report shows them.
    """
    session = Session(arguments, json, output_folder)
    with session.errors():
        from v4gen import pipeline
        from v4gen.digest import digest_bytes
        from v4gen.read.reader import read_specs
        from v4gen.report.findings import Findings
        from v4gen.report.validation import render_table
        from v4gen.report.writer import renderer, require_writable, write_report
        from v4gen.run.record import make_record, write_table_record

        specs = read_specs(session.paths)
        if record and len(specs) != 1:
            raise failure("bad-usage", "`--record` takes one SPEC", "name the spec")
        require_targets(specs, [target] if target else [])
        if report:
            renderer(report)
        require_runtime(device)
        for spec in specs:
            require_package(session.output / spec.name)
        if report:
            require_writable(report)
        proofs = [pipeline.proof(spec.name, session.output, device) for spec in specs]
        command_line = ["v4gen", *sys.argv[1:]]
        packages = [(spec, session.output / spec.name) for spec in specs]
        validations = pipeline.validate_each(
            packages, device, lambda *step: show(*step), target=target, jobs=jobs, time_limit=time_limit
        )
        results, found = [], []
        for spec, folder in packages:
            with progress(f"validating {spec.name}", quiet=json) as show:
                result = next(validations)
            results.append(result)
            found.append(Findings(result, make_record("validation", result.as_data(), device, folder, command_line)))
            if not json:
                session.console.print(render_table(result))
        if record:
            write_table_record(record, found[0].record)
            if results[0].passed and target is None:  # the lock tells what a device takes by itself
                proofs[0](digest_bytes(record.read_bytes()))
        if report:
            write_report(report, found)
    if json:
        session.print_json({"validations": [result.as_data() for result in results]})
    sys.exit(0 if all(result.passed for result in results) else DRIFT)
