"""v4gen bench: time a package's kernels beside its rivals."""

import sys
from pathlib import Path

import rich_click as click

from .session import Session, device_option, failure, require_package, require_runtime, session_options


@click.command("bench")
@session_options
@device_option
@click.option("--length", "lengths", multiple=True, type=click.IntRange(1), help="Tokens of a sequence; may repeat.")
@click.option("--batch", type=click.IntRange(1), default=1, show_default=True, help="Sequences.")
@click.option("--offset", type=click.IntRange(0), default=0, help="Position of the first token.  [default: 0]")
@click.option("--ratio", type=click.IntRange(1), help="Compress ratio of the run, instead of the spec's.")
@click.option("--topk", type=click.IntRange(1, 4096), help="Top-k of the run, instead of the spec's.")
@click.option("--rival", "rivals", multiple=True, type=click.Choice(["nemo", "torch"]), help="Beside this; may repeat.")
@click.option("--sustained", type=float, default=0, metavar="SECONDS", help="Also time calls on end for this long.")
@click.option("--record", type=click.Path(dir_okay=False, path_type=Path), help="Write the numbers of one SPEC here.")
@click.option(
    "--chart", type=click.Path(dir_okay=False, path_type=Path), help="Draw the times of one SPEC: SVG or PNG."
)
def command(
    arguments: tuple[Path, ...],
    output_folder: Path | None,
    json: bool,
    device: str,
    lengths: tuple[int, ...],
    batch: int,
    offset: int,
    ratio: int | None,
    topk: int | None,
    rivals: tuple[str, ...],
    sustained: float,
    record: Path | None,
    chart: Path | None,
) -> None:
    """Time scores, selection, whole forward and backward of the SPECs' packages, as they are on disk.

    A matrix product of the same run is the ceiling. On the CPU everything runs on one core. Lengths are 1024 on the CPU
    and 16384 on a GPU unless given. A rival that is not installed is left out.
    """
    session = Session(arguments, json, output_folder)
    with session.errors():
        from v4gen.read.reader import read_specs
        from v4gen.report.bench import bench_table
        from v4gen.run.bench import bench_package
        from v4gen.run.contest import Shape

        specs = read_specs(session.paths)
        if (record or chart) and len(specs) != 1:
            raise failure("one-spec", "`--record` and `--chart` take one SPEC", "name the one to write about")
        if chart and chart.suffix not in (".svg", ".png"):
            raise failure("chart-format", f"`{chart}` is no chart's name", "let it end in .svg or .png")
        require_runtime(device)
        for spec in specs:
            require_package(session.output / spec.name)
        lengths = lengths or ((1024,) if device == "cpu" else (16384,))
        results = {}
        for spec in specs:
            shapes = [Shape(batch, n, offset, ratio or spec.compress_ratio, topk or spec.topk) for n in lengths]
            timings = bench_package(session.output / spec.name, spec, device, shapes, rivals, sustained)
            results[spec.name] = [timing.as_data() for timing in timings]
            if not json:
                session.console.print(bench_table(spec.name, device, timings))
        if record:
            from v4gen.run.record import make_record, write_record

            command_line = ["v4gen", *sys.argv[1:]]
            (timed,) = results.values()
            write_record(record, make_record("timings", timed, device, session.output / specs[0].name, command_line))
        if chart:
            from v4gen.report.chart import write_chart

            write_chart(chart, f"{specs[0].name} on {device}", timings)
    if json:
        session.print_json({"timings": results})
