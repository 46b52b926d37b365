"""Timings as a chart: time against sequence length, a panel a task, a line a contestant."""

from collections.abc import Sequence
from pathlib import Path

from v4gen.diagnostic import Diagnostic, DiagnosticError, Severity
from v4gen.run.bench import MATMUL, OURS, Timing

PANELS = ("forward", "scores", "select", "backward")
# Okabe and Ito's palette, which colour-blind readers can tell apart; v4gen first.
COLORS = ("#0072B2", "#D55E00", "#999999", "#009E73")


def write_chart(path: Path, title: str, timings: Sequence[Timing]) -> None:
    """Write the chart as SVG or PNG, by the ending of `path`; equal timings give equal bytes.

    Raises DiagnosticError where matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError as error:
        problem = Diagnostic(Severity.ERROR, "missing-tool", "a chart needs matplotlib", hint="pip install matplotlib")
        raise DiagnosticError([problem]) from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = [task for task in PANELS if any(timing.task == task for timing in timings)]
    with matplotlib.rc_context({"svg.hashsalt": "v4gen", "svg.fonttype": "none", "font.size": 10}):
        figure, axes = pyplot.subplots(1, len(shown), figsize=(4.2 * len(shown), 3.8), squeeze=False)
        for axis, task in zip(axes[0], shown, strict=True):
            _draw(axis, task, timings)
        axes[0][0].set_ylabel("milliseconds")
        axes[0][0].legend(frameon=False)
        figure.suptitle(title, x=0.01, ha="left")
        figure.tight_layout()
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=150)
        pyplot.close(figure)


def _draw(axis: object, task: str, timings: Sequence[Timing]) -> None:
    from matplotlib.axes import Axes
    from matplotlib.ticker import FuncFormatter, NullFormatter

    assert isinstance(axis, Axes)
    contestants = sorted({t.who for t in timings if t.task != MATMUL}, key=lambda who: (who != OURS, who))
    for who, color in zip(contestants, COLORS, strict=False):
        points = sorted((t.queries, t.median_ms) for t in timings if (t.task, t.who) == (task, who))
        if points:
            axis.plot(*zip(*points, strict=True), marker="o", markersize=4, color=color, label=who)
    lengths = sorted({t.queries for t in timings})
    axis.set(title=task, xscale="log", yscale="log", xlabel="tokens", xticks=lengths)
    axis.xaxis.set_major_formatter(FuncFormatter(lambda tokens, _: f"{tokens / 1024:g}k"))
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.grid(visible=True, which="major", alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
