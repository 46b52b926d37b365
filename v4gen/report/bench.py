"""Timings for the terminal."""

from rich.console import Group
from rich.table import Table
from rich.text import Text

from v4gen.report.validation import place_of
from v4gen.run.contest import Shape
from v4gen.run.timing import EVERY_TASK, Contest, Timing

COLUMNS = (
    "ms",
    "fastest … slowest",
    "sustained",
    "TFLOP/s",
    "of matmul",
    "GB/s",
    "of roofline",
    "extra MiB",
    "mJ",
    "/ v4gen",
)


def bench_report(package: str, device: str, contest: Contest, shape: Shape) -> Group:
    """A table of one shape, and below it what was left out and why."""
    place = place_of(device, contest.target)
    parts: list[Table | Text] = [_table(f"{package} on {place}, {shape}", contest, shape)]
    for skip in contest.skips:
        if skip.shape == shape:
            task = "" if skip.task == EVERY_TASK else f"{skip.task}, "
            parts.append(Text(f"{task}{skip.who}: {skip.reason}", style="yellow"))
    return Group(*parts)


def _table(title: str, contest: Contest, shape: Shape) -> Table:
    """One line a measurement: median and spread, rates beside the ceilings of the same run, memory, energy.

    Bytes are those that must move. The last column says how many times as long as v4gen the contestant took. A column
    that would hold nothing is left out.
    """
    rows = [_cells(timing, contest) for timing in contest.timings if timing.shape == shape]
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("")
    kept = [place for place in range(len(COLUMNS)) if any(row[1 + place] != "-" for row in rows)]
    for place in kept:
        table.add_column(COLUMNS[place], justify="right", no_wrap=True)
    for row in rows:
        table.add_row(row[0], *(row[1 + place] for place in kept))
    return table


def _cells(timing: Timing, contest: Contest) -> tuple[str, ...]:
    share, roofline, ratio = contest.share(timing), contest.roofline(timing), contest.ratio(timing)
    return (
        f"{timing.task}, {timing.who}",
        f"{timing.median_ms:.3f}",
        f"{timing.fastest_ms:.3f} … {timing.slowest_ms:.3f}",
        f"{timing.sustained_ms:.3f}" if timing.sustained_ms else "-",
        f"{timing.gflops / 1e3:.3f}" if timing.flops else "-",
        "-" if share is None else f"{share:.0%}",
        f"{timing.gbytes:.1f}" if timing.bytes else "-",
        "-" if roofline is None else f"{roofline:.0%}",
        f"{timing.extra_mib:.0f}" if timing.extra_mib >= 0 else "-",
        f"{timing.energy_mj:.0f}" if timing.energy_mj else "-",
        "-" if ratio is None else f"{ratio:.2f}",
    )
