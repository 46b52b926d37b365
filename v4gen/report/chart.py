"""The whole forward as a chart: time against length, a colour a contestant."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from v4gen.diagnostic import Diagnostic, DiagnosticError, Severity
from v4gen.run.bench import OURS, Contest
from v4gen.run.contest import Shape

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's palette, which colour-blind readers can tell apart; v4gen first.
COLORS = ("#0072B2", "#D55E00", "#999999", "#009E73")
STYLES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

Line = list[tuple[int, float]]  # length, milliseconds


def write_chart(path: Path, title: str, contest: Contest) -> None:
    """Write the chart as SVG or PNG, by the ending of `path`; equal timings give equal bytes.

    A line joins shapes that differ in length alone. Raises DiagnosticError where matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError as error:
        problem = Diagnostic(Severity.ERROR, "missing-tool", "a chart needs matplotlib", hint="pip install matplotlib")
        raise DiagnosticError([problem]) from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    with matplotlib.rc_context({"svg.hashsalt": "v4gen", "svg.fonttype": "none", "font.size": 10}):
        figure, axis = pyplot.subplots(figsize=(6.4, 4.2))
        _draw(axis, contest)
        figure.suptitle(title, x=0.01, ha="left")
        figure.tight_layout()
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=150)
        pyplot.close(figure)


def lines(contest: Contest) -> Iterator[tuple[str, str, Line]]:
    """Who, of which shapes, and its forwards by length; v4gen first."""
    contestants = sorted({t.who for t in contest.timings if t.task == "forward"}, key=lambda who: (who != OURS, who))
    for family in dict.fromkeys(map(_family, contest.shapes)):
        members = [shape for shape in contest.shapes if _family(shape) == family]
        for who in contestants:
            timed = (contest.find("forward", who, shape) for shape in members)
            if line := sorted((timing.shape.length, timing.median_ms) for timing in timed if timing):
                yield who, family, line


def _family(shape: Shape) -> str:
    offset = f", from {shape.offset}" if shape.offset else ""
    return f"batch {shape.batch}, ratio {shape.ratio}, top-k {shape.topk}{offset}"


def _draw(axis: "Axes", contest: Contest) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    drawn = list(lines(contest))
    contestants, families = (list(dict.fromkeys(line[part] for line in drawn)) for part in (0, 1))
    for who, family, line in drawn:
        kind = families.index(family)
        axis.plot(
            *zip(*line, strict=True),
            color=COLORS[contestants.index(who) % len(COLORS)],
            linestyle=STYLES[kind % len(STYLES)],
            marker=MARKERS[kind % len(MARKERS)],
            markersize=4,
            label=f"{who}, {family}" if len(families) > 1 else who,
        )
    lengths = sorted({length for *_, line in drawn for length, _ in line})
    axis.set(xscale="log", yscale="log", xlabel="queries", ylabel="milliseconds", xticks=lengths)
    axis.xaxis.set_major_formatter(FuncFormatter(lambda tokens, _: f"{tokens / 1024:.3g}k"))
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.grid(visible=True, which="major", alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=8)
