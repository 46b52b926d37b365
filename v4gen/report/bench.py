"""Timings as a table for the terminal."""

from collections.abc import Sequence

from rich.table import Table

from v4gen.run.bench import Timing


def bench_table(package: str, device: str, timings: Sequence[Timing]) -> Table:
    """One line a measurement: the median and its spread, and the rate beside the matrix product's of the same run."""
    table = Table(title=f"{package} on {device}", title_justify="left", box=None, pad_edge=False)
    for column in ("", "queries", "keys", "ms", "fastest … slowest", "GFLOP/s", "of matmul"):
        table.add_column(column, justify="left" if not column else "right", no_wrap=True)
    ceilings = {timing.queries: timing.gflops for timing in timings if timing.name == "matmul"}
    for timing in timings:
        table.add_row(
            timing.name,
            str(timing.queries),
            str(timing.keys),
            f"{timing.median_ms:.2f}",
            f"{timing.fastest_ms:.2f} … {timing.slowest_ms:.2f}",
            f"{timing.gflops:.1f}",
            f"{timing.gflops / ceilings[timing.queries]:.0%}",
        )
    return table
