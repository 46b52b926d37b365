"""v4gen bench: time a package's kernels beside its rivals."""

import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from .against import (
    noted_contest,
    recorded_contest,
    require_comparison,
    require_no_narrower,
    require_other_file,
    rivals_of,
    tasks_of,
)
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

if TYPE_CHECKING:
    from v4gen.read.spec import Spec
    from v4gen.run.contest import Shape
    from v4gen.run.power import Meter
    from v4gen.run.timing import Contest

SHAPE = ("length", "batch", "offset", "ratio", "topk")
RIVALS = ("cudnn", "flashinfer", "megatron", "nemo", "torch")
TASKS = ("kernel", "scores", "select", "forward", "backward", "forward+backward", "reproducible backward")
LENGTH = {"cpu": 1024, "cuda": 16384}
LARGEST_SEED = 9999


def _numbers(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> list[dict[str, int]]:
    """Each `length=4096,batch=8` as the numbers that it gives; raises BadParameter where it gives something else."""
    shapes = []
    for value in values:
        parts = [part.partition("=") for part in value.split(",")]
        names = [name for name, _, _ in parts]
        if not set(names) <= set(SHAPE) or len(set(names)) < len(names) or "length" not in names:
            expected = ", ".join(f"{name}=…" for name in SHAPE)
            raise click.BadParameter(f"`{value}`: expected {expected}, each at most once and length always")
        if wrong := [number for _, _, number in parts if not (number.isascii() and number.isdigit())]:
            raise click.BadParameter(f"`{value}`: `{wrong[0]}` is no number")
        shapes.append({name: int(number) for name, _, number in parts})
    return shapes


def _range(context: click.Context, option: click.Parameter, value: str | None) -> list[dict[str, int]]:
    """`4096:65536` as each length from the first to the last, doubling. Raises BadParameter where it is no such."""
    if value is None:
        return []
    first, _, last = value.partition(":")
    if not all(number.isascii() and number.isdigit() for number in (first, last)) or not 1 <= int(first) <= int(last):
        raise click.BadParameter(f"`{value}`: expected two lengths, such as 4096:65536, the first not above the last")
    lengths, length = [], int(first)
    while length <= int(last):
        lengths.append({"length": length})
        length *= 2
    return lengths


@click.command("bench")
@session_options
@device_option
@target_option
@click.option(
    "--shape",
    "given",
    multiple=True,
    callback=_numbers,
    metavar="length=S[,batch=B][,offset=P][,ratio=R][,topk=K]",
    help="S queries of each of B sequences, the first at position P; R and K instead of the spec's. May repeat.",
)
@click.option(
    "--lengths",
    callback=_range,
    metavar="FIRST:LAST",
    help="Also every length from FIRST to LAST, each twice the last.",
)
@click.option("--drawn", type=click.IntRange(1), metavar="N", help="Also N lengths of 4096 to 65536, drawn at random.")
@click.option("--seed", type=click.IntRange(0), metavar="K", help="What they are drawn with, instead of a new seed.")
@click.option("--rival", "rivals", multiple=True, type=click.Choice(RIVALS), help="Time it beside; may repeat.")
@click.option("--task", "tasks", multiple=True, type=click.Choice(TASKS), help="Time this alone; may repeat.")
@click.option(
    "--sustained",
    type=click.FloatRange(min=0),
    default=0,
    metavar="SECONDS",
    help="Also time calls on end for this long, and take their energy where NVML tells it.",
)
@click.option(
    "--record",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the numbers of one SPEC here; a file of the project is named in the lock.",
)
@click.option(
    "--against",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="RECORD|LOCK",
    help="Exit with 1 if SPEC is slower than this record says, or the one that this lock names.",
)
@click.option(
    "--accept",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="RECORD",
    help="Tell the lock of a record of one SPEC that was made elsewhere, and time nothing.",
)
@click.option(
    "--charts",
    type=click.Path(file_okay=False, path_type=Path),
    help="Draw time, roofline and memory of one SPEC into this folder, as SVG and PNG.",
)
def command(
    arguments: tuple[Path, ...],
    output_folder: Path | None,
    json: bool,
    device: str,
    target: str | None,
    given: list[dict[str, int]],
    lengths: list[dict[str, int]],
    drawn: int | None,
    seed: int | None,
    rivals: tuple[str, ...],
    tasks: tuple[str, ...],
    sustained: float,
    record: Path | None,
    against: Path | None,
    accept: Path | None,
    charts: Path | None,
) -> None:
    """Time scores, selection, whole forward, backward and both of the SPECs' packages, as they are on disk.

    A matrix product and a copy of the same run are the ceilings. On the CPU everything runs on one core. Without shapes
    the length is 1024 on the CPU and 16384 on a GPU. A rival is timed only if it gives the package's own results; one
    that does not, that is not installed or that a shape does not suit is left out, with the reason.

    With --against, shapes, tasks and rivals are the record's unless others are given, and a regression is a task that
    takes longer than the spread of both runs allows, as a multiple of what every other contestant and ceiling takes.
    """
    session = Session(arguments, json, output_folder)
    if drawn and seed is None:
        seed = random.randint(0, LARGEST_SEED)
    with session.errors():
        from v4gen.emit.benchmark import note_benchmark
        from v4gen.read.reader import read_specs
        from v4gen.report.bench import bench_report
        from v4gen.report.regression import regression_table
        from v4gen.run.bench import Course, bench_package
        from v4gen.run.package import NoKernels
        from v4gen.run.record import make_record, write_table_record
        from v4gen.run.regression import verdicts
        from v4gen.run.rivals import rival_versions
        from v4gen.run.timing import OURS

        command_line = ["v4gen", *sys.argv[1:]]
        specs = read_specs(session.paths)
        if accept and (record or against):
            raise failure("bad-usage", "`--accept` times nothing: it goes with neither `--record` nor `--against`")
        _check_usage(len(specs), drawn, seed, one_spec=any((record, against, accept, charts)))
        if accept:
            _accept(session, specs[0].name, accept)
            return
        require_runtime(device)
        require_targets(specs, [target] if target else [])
        for spec in specs:
            require_package(session.output / spec.name)
        if against and record:
            require_other_file(against, specs[0].name, device, record)
        recorded = recorded_contest(against, specs[0], device) if against else None
        if recorded:
            tasks, rivals = tasks or tasks_of(recorded), rivals or rivals_of(recorded)
        noted = noted_contest(session.output, specs[0].name, device) if record else None  # it may be written over
        if drawn and not json:
            session.console.print(f"shapes drawn with --seed {seed}")
        meter, no_energy = _meter(device, sustained)
        if no_energy and not json:
            session.console.print(f"no energy: {no_energy}")
        results = {}
        for spec in specs:
            folder = session.output / spec.name

            def keep(contest: "Contest", shape: "Shape", spec: "Spec" = spec, folder: Path = folder) -> None:
                versions = rival_versions(rivals)
                about = {"spec": spec.name, "seed": seed, "rivals": versions, "no_energy": no_energy}
                results[spec.name] = about | contest.as_data()
                if record and any(timing.who == OURS for timing in contest.timings):
                    data = make_record("bench", results[spec.name], device, folder, command_line)
                    write_table_record(record, data)
                if not json:
                    session.console.print(bench_report(spec.name, device, contest, shape))

            shapes = _shapes(spec, device, given + lengths, drawn, seed, recorded)
            course = Course(tasks, rivals, sustained, target)
            try:
                contest = bench_package(folder, spec, device, shapes, course, meter, keep)
            except NoKernels as error:
                raise failure("no-kernels", str(error)) from error
            if not any(timing.who == OURS for timing in contest.timings):
                reason = contest.skips[0].reason if contest.skips else "the package has none of the tasks"
                raise failure("nothing-timed", f"nothing of `{spec.name}` was timed: {reason}")
        if charts:
            from v4gen.report.chart import write_charts

            write_charts(charts, f"{specs[0].name} on {device}", contest)
        found = verdicts(recorded, contest) if recorded else ()
        if recorded:
            require_comparison(found, recorded, contest)
        regressed = any(verdict.fault for verdict in found)
        of_project = record and record.resolve().is_relative_to(session.project.root.resolve())
        # The lock tells of what a device takes by itself, and a slower run is not what later ones are held against.
        if record and of_project and target is None and not regressed:
            require_no_narrower(noted, contest, record)
            note_benchmark(session.output, specs[0].name, record)
    if json:
        compared = {"against": [verdict.as_data() for verdict in found]} if recorded else {}
        session.print_json({"results": results} | compared)
    elif recorded:
        session.console.print(regression_table(specs[0].name, found))
    sys.exit(DRIFT if regressed else 0)


def _accept(session: Session, name: str, record: Path) -> None:
    """Note the record in the lock. Raises DiagnosticError where it is of other files than the lock's."""
    from v4gen.emit.benchmark import note_benchmark

    if not note_benchmark(session.output, name, record):
        message = f"`{record.as_posix()}` is not of the files that the lock names of `{name}`"
        raise failure("other-files", message, "bench the package as it is, or generate the one that was timed")
    if session.json:
        session.print_json({"results": {}})
    else:
        session.console.print(f"{name}: later benchmarks are held against {record.as_posix()}")


def _meter(device: str, sustained: float) -> "tuple[Meter | None, str]":
    """What tells the energy of calls on end, or None and why nothing does; no reason is needed where none is asked."""
    if not sustained:
        return None, ""
    from v4gen.run.power import Meter, NoMeter

    if device == "cpu":
        return None, "a CPU's is not measured"
    try:
        return Meter(device), ""
    except NoMeter as error:
        return None, str(error)


def _check_usage(specs: int, drawn: int | None, seed: int | None, *, one_spec: bool) -> None:
    """Raise DiagnosticError where the options do not go together."""
    if one_spec and specs != 1:
        message = "`--record`, `--against`, `--accept` and `--charts` take one SPEC"
        raise failure("one-spec", message, "name the one that it is about")
    if seed is not None and not drawn:
        raise failure("bad-usage", "`--seed` is for `--drawn`", "say how many shapes to draw")


def _shapes(
    spec: "Spec",
    device: str,
    given: list[dict[str, int]],
    drawn: int | None,
    seed: int | None,
    recorded: "Contest | None",
) -> "list[Shape]":
    from v4gen.run.contest import Shape, drawn_shapes

    try:
        shapes = [Shape.of(spec, **numbers) for numbers in given]
    except ValueError as error:
        raise failure("bad-shape", f"`--shape` or `--lengths`: {error}") from error
    if drawn and seed is not None:
        try:
            shapes += drawn_shapes(spec, drawn, seed)
        except ValueError as error:
            raise failure("bad-shape", f"`--drawn`: {error}") from error
    if not shapes and recorded:
        return list(recorded.shapes)
    return list(dict.fromkeys(shapes)) or [Shape.of(spec, length=LENGTH[device])]
