"""v4gen bench: time a package's kernels."""

import sys
from pathlib import Path

import rich_click as click

from .session import Session, device_option, require_package, require_runtime, session_options


@click.command("bench")
@session_options
@device_option
@click.option("--length", "lengths", multiple=True, type=click.IntRange(1), help="Tokens of the sequence; may repeat.")
@click.option("--record", type=click.Path(dir_okay=False, path_type=Path), help="Write the numbers of one SPEC here.")
def command(
    arguments: tuple[Path, ...],
    output_folder: Path | None,
    json: bool,
    device: str,
    lengths: tuple[int, ...],
    record: Path | None,
) -> None:
    """Time scores, whole forward and backward of the SPECs' packages as they are on disk, beside a matrix product.

    The CPU kernels run on one core. Lengths are 1024 on the CPU and 16384 on a GPU unless given.
    """
    session = Session(arguments, json, output_folder)
    with session.errors():
        from v4gen.read.reader import read_specs
        from v4gen.report.bench import bench_table
        from v4gen.run.bench import bench_package

        specs = read_specs(session.paths)
        if record and len(specs) != 1:
            raise click.UsageError("--record takes one SPEC")
        require_runtime(device)
        for spec in specs:
            require_package(session.output / spec.name)
        results = {}
        for spec in specs:
            lengths = lengths or ((1024,) if device == "cpu" else (16384,))
            timings = bench_package(session.output / spec.name, spec, device, lengths)
            results[spec.name] = [timing.as_data() for timing in timings]
            if not json:
                session.console.print(bench_table(spec.name, device, timings))
        if record:
            from v4gen.run.record import make_record, write_record

            command_line = ["v4gen", *sys.argv[1:]]
            (timed,) = results.values()
            write_record(record, make_record("timings", timed, device, session.output / specs[0].name, command_line))
    if json:
        session.print_json({"timings": results})
