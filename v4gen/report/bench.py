"""Timings as a table for the terminal."""

from collections.abc import Sequence

from rich.table import Table

from v4gen.run.bench import MATMUL, OURS, Timing


def bench_table(package: str, device: str, timings: Sequence[Timing]) -> Table:
    """One line a measurement: median and spread, the rate beside the matrix product's of the same run, and memory.

    The last column says how many times as long as v4gen the contestant took.
    """
    table = Table(title=f"{package} on {device}", title_justify="left", box=None, pad_edge=False)
    table.add_column("")
    for column in (
        "B",
        "S",
        "N",
        "ms",
        "fastest … slowest",
        "sustained",
        "TFLOP/s",
        "of matmul",
        "extra MiB",
        "x v4gen",
    ):
        table.add_column(column, justify="right", no_wrap=True)
    for timing in timings:
        table.add_row(*_cells(timing, timings))
    return table


def _cells(timing: Timing, timings: Sequence[Timing]) -> tuple[str, ...]:
    def of(task: str, who: str) -> Timing | None:
        shape = (timing.batch, timing.queries, timing.keys)
        found = (t for t in timings if (t.task, t.who) == (task, who) and (t.batch, t.queries, t.keys) == shape)
        return next(found, None)

    ceiling, ours = of(MATMUL, "torch"), of(timing.task, OURS)
    return (
        f"{timing.task}, {timing.who}",
        str(timing.batch),
        str(timing.queries),
        str(timing.keys),
        f"{timing.median_ms:.3f}",
        f"{timing.fastest_ms:.3f} … {timing.slowest_ms:.3f}",
        f"{timing.sustained_ms:.3f}" if timing.sustained_ms else "-",
        f"{timing.gflops / 1e3:.3f}" if timing.flops else "-",
        f"{timing.gflops / ceiling.gflops:.0%}" if timing.flops and ceiling else "-",
        f"{timing.extra_mib:.0f}" if timing.extra_mib >= 0 else "-",
        f"{timing.median_ms / ours.median_ms:.2f}" if ours else "-",
    )
