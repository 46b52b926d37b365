"""v4gen validate: hold packages, as they are on disk, against the reference."""

import sys
from pathlib import Path

import rich_click as click

from .progress import progress
from .session import DRIFT, Session, device_option, failure, require_package, require_runtime, session_options


@click.command("validate")
@session_options
@device_option
@click.option("--record", type=click.Path(dir_okay=False, path_type=Path), help="Write the evidence of one SPEC here.")
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write it for people: a page (.html), or Markdown for a pull request (.md).",
)
def command(
    arguments: tuple[Path, ...],
    output_folder: Path | None,
    json: bool,
    device: str,
    record: Path | None,
    report: Path | None,
) -> None:
    """Hold the packages of the SPECs, as they are on disk, against a float64 reference.

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
        from v4gen.run.record import make_record, write_record

        specs = read_specs(session.paths)
        if record and len(specs) != 1:
            raise failure("bad-usage", "`--record` takes one SPEC", "name the spec")
        if report:
            renderer(report)
        require_runtime(device)
        for spec in specs:
            require_package(session.output / spec.name)
        if report:
            require_writable(report)
        proofs = [pipeline.proof(spec.name, session.output, device) for spec in specs]
        command_line = ["v4gen", *sys.argv[1:]]
        results, found = [], []
        for spec in specs:
            folder = session.output / spec.name
            with progress(f"validating {spec.name}", quiet=json) as show:
                result = pipeline.validate(spec, folder, device, show)
            results.append(result)
            found.append(Findings(result, make_record("validation", result.as_data(), device, folder, command_line)))
            if not json:
                session.console.print(render_table(result))
        if record:
            write_record(record, found[0].record)
            if results[0].passed:
                proofs[0](digest_bytes(record.read_bytes()))
        if report:
            write_report(report, found)
    if json:
        session.print_json({"validations": [result.as_data() for result in results]})
    sys.exit(0 if all(result.passed for result in results) else DRIFT)
