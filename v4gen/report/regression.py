"""What a benchmark shows beside its record, for the terminal."""

from collections.abc import Sequence

from rich.table import Table

from v4gen.run.regression import Ratio, Verdict


def regression_table(package: str, verdicts: Sequence[Verdict]) -> Table:
    """One line a task and shape: its ratio to the yardstick that speaks for it most, then and now."""
    table = Table(title=f"{package} beside its record", title_justify="left", box=None, pad_edge=False)
    for column in ("task", "shape", "beside"):
        table.add_column(column)
    for column in ("recorded", "now", "change"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("")
    for verdict in verdicts:
        change = verdict.change
        table.add_row(
            verdict.task,
            str(verdict.shape),
            verdict.yardstick or "-",
            _range(verdict.recorded),
            _range(verdict.found),
            "-" if change is None else f"{change:+.1%}",
            verdict.fault or "ok",
            style="red" if verdict.fault else None,
        )
    return table


def _range(ratio: Ratio | None) -> str:
    return "-" if ratio is None else f"{ratio.median:.3f} ({ratio.least:.3f} … {ratio.most:.3f})"
