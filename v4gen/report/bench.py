"""Timings for the terminal."""

from rich.console import Group
from rich.table import Table
from rich.text import Text

from v4gen.run.bench import EVERY_TASK, Contest, Timing
from v4gen.run.contest import Shape

COLUMNS = ("ms", "fastest … slowest", "sustained", "TFLOP/s", "of matmul", "extra MiB", "/ v4gen")


def bench_report(package: str, device: str, contest: Contest) -> Group:
    """A table a shape, and below it what was left out and why."""
    parts: list[Table | Text] = []
    for shape in contest.shapes:
        parts.append(_table(f"{package} on {device}, {shape}", contest, shape))
        for skip in contest.skips:
            if skip.shape == shape:
                task = "" if skip.task == EVERY_TASK else f"{skip.task}, "
                parts.append(Text(f"{task}{skip.who}: {skip.reason}", style="yellow"))
    return Group(*parts)


def _table(title: str, contest: Contest, shape: Shape) -> Table:
    """One line a measurement: median and spread, the rate beside the matrix product's of the same run, and memory.

    The last column says how many times as long as v4gen the contestant took.
    """
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("")
    for column in COLUMNS:
        table.add_column(column, justify="right", no_wrap=True)
    for timing in contest.timings:
        if timing.shape == shape:
            table.add_row(*_cells(timing, contest))
    return table


def _cells(timing: Timing, contest: Contest) -> tuple[str, ...]:
    share, ratio = contest.share(timing), contest.ratio(timing)
    return (
        f"{timing.task}, {timing.who}",
        f"{timing.median_ms:.3f}",
        f"{timing.fastest_ms:.3f} … {timing.slowest_ms:.3f}",
        f"{timing.sustained_ms:.3f}" if timing.sustained_ms else "-",
        f"{timing.gflops / 1e3:.3f}" if timing.flops else "-",
        "-" if share is None else f"{share:.0%}",
        f"{timing.extra_mib:.0f}" if timing.extra_mib >= 0 else "-",
        "-" if ratio is None else f"{ratio:.2f}",
    )
