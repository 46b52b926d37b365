"""A benchmark as charts: time against length, the roofline, and memory against length; a colour a contestant."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from v4gen.diagnostic import Diagnostic, DiagnosticError, Severity
from v4gen.plan.cost import SCORE_BYTES
from v4gen.run.contest import Shape
from v4gen.run.timing import CEILING, COPY, MATMUL, OURS, Contest, Timing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".svg", ".png")
TASKS = ("forward", "backward", "forward+backward")
# Okabe and Ito's palette, which colour-blind readers can tell apart; v4gen first.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#999999")
STYLES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
PANEL = 4.2  # inches

Line = list[tuple[float, float]]


def write_charts(folder: Path, title: str, contest: Contest, source: str = "") -> list[Path]:
    """Write `time`, `roofline` and `memory` as SVG and PNG into `folder`, and return the files; equal timings and one
    version of matplotlib give equal bytes.

    A line joins shapes that differ in length alone. A chart that would be empty is not written. `source` is kept in the
    files' metadata. Raises DiagnosticError where matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError as error:
        problem = Diagnostic(Severity.ERROR, "missing-tool", "a chart needs matplotlib", hint="pip install matplotlib")
        raise DiagnosticError([problem]) from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with matplotlib.rc_context({"svg.hashsalt": "v4gen", "svg.fonttype": "none", "font.size": 10}):
        for name, draw in {"time": _time, "roofline": _roofline, "memory": _memory}.items():
            figure = draw(contest)
            if figure is None:
                continue
            figure.suptitle(f"{title}: {name}", x=0.01, ha="left")
            figure.tight_layout()
            for suffix in FORMATS:
                written.append(folder / f"{name}{suffix}")
                metadata = {"Description": source} | ({"Date": None} if suffix == ".svg" else {"Software": None})
                figure.savefig(written[-1], metadata=metadata, dpi=150)
            pyplot.close(figure)
    return written


def lines(
    contest: Contest, task: str, place: Callable[[Timing], tuple[float, float] | None]
) -> Iterator[tuple[str, str, Line]]:
    """Who, of which shapes, and the places of its timings of a task by length; v4gen first. None has no place."""
    contestants = _contestants(contest)
    for family in dict.fromkeys(map(_family, contest.shapes)):
        members = sorted((s for s in contest.shapes if _family(s) == family), key=lambda shape: shape.length)
        for who in contestants:
            timed = [timing for shape in members if (timing := contest.find(task, who, shape))]
            if line := [point for timing in timed if (point := place(timing))]:
                yield who, family, line


def _contestants(contest: Contest) -> list[str]:
    found = {timing.who for timing in contest.timings if timing.task not in (MATMUL, COPY)}
    return sorted(found, key=lambda who: (who != OURS, who))


def _family(shape: Shape) -> str:
    offset = f", from {shape.offset}" if shape.offset else ""
    return f"batch {shape.batch}, ratio {shape.ratio}, top-k {shape.topk}{offset}"


def _time(contest: Contest) -> "Figure | None":
    return _by_length(contest, lambda timing: (timing.shape.length, timing.median_ms), "milliseconds", "log")


def _memory(contest: Contest) -> "Figure | None":
    """Memory beyond inputs and outputs; beside it what all scores would take, if they were held at once."""
    figure = _by_length(
        contest,
        lambda timing: (timing.shape.length, timing.extra_mib) if timing.extra_mib >= 0 else None,
        "MiB beyond inputs and outputs",
        "symlog",
    )
    shapes = sorted({shape for shape in contest.shapes if shape.batch == 1}, key=lambda shape: shape.length)
    for axis in figure.axes if figure and shapes else ():
        matrix = [(s.length, SCORE_BYTES * s.length * s.keys / 2**20) for s in shapes]
        axis.plot(*zip(*matrix, strict=True), color="#BBBBBB", linewidth=1, zorder=0, label="all scores at once")
        axis.legend(frameon=False, fontsize=8)
        axis.set_ylim(bottom=0)
    return figure


def _by_length(
    contest: Contest, place: Callable[[Timing], tuple[float, float] | None], label: str, scale: str
) -> "Figure | None":
    """A panel a task."""
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter, NullFormatter

    panels = {task: drawn for task in TASKS if (drawn := list(lines(contest, task, place)))}
    if not panels:
        return None
    figure, axes = pyplot.subplots(1, len(panels), figsize=(PANEL * len(panels), PANEL), sharey=True, squeeze=False)
    for (task, drawn), axis in zip(panels.items(), axes[0], strict=True):
        _draw(axis, drawn, _contestants(contest))
        lengths = sorted({length for *_, line in drawn for length, _ in line})
        axis.set(title=task, xscale="log", yscale=scale, xlabel="queries", xticks=lengths)
        axis.xaxis.set_major_formatter(FuncFormatter(lambda tokens, _: f"{tokens / 1024:.3g}k"))
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        _finish(axis)
    axes[0][0].set_ylabel(label)
    return figure


def _roofline(contest: Contest) -> "Figure | None":
    """Rate against operations a byte that must move, below the ceilings: the fastest product and copy of the run."""
    from matplotlib import pyplot

    ceilings = [[t for t in contest.timings if (t.task, t.who) == (task, CEILING)] for task in (MATMUL, COPY)]
    panels = {task: drawn for task in TASKS if (drawn := list(lines(contest, task, _intensity)))}
    if not panels or not all(ceilings):
        return None
    product = max(timing.gflops for timing in ceilings[0]) / 1e3
    copy = max(timing.gbytes for timing in ceilings[1]) / 1e3  # TB/s: so many TFLOP/s at an operation a byte
    figure, axis = pyplot.subplots(figsize=(1.6 * PANEL, 1.2 * PANEL))
    for task, marker in zip(panels, MARKERS, strict=False):
        _draw(axis, panels[task], _contestants(contest), marker, f"{task}, ")
    x = [point[0] for drawn in panels.values() for *_, line in drawn for point in line]
    ridge = product / copy
    left, right = min(*x, ridge / 4) / 2, max(*x, ridge) * 2
    axis.plot([left, ridge, right], [left * copy, product, product], color="black", linewidth=1.2, zorder=0)
    axis.annotate(f"matrix product, {product:.3g} TFLOP/s", (right, product), va="bottom", ha="right", fontsize=8)
    axis.annotate(f"copy, {copy:.3g} TB/s", (left, left * copy), va="top", ha="left", fontsize=8)
    axis.set(xscale="log", yscale="log", xlabel="operations a byte that must move", ylabel="TFLOP/s")
    _finish(axis)
    return figure


def _intensity(timing: Timing) -> tuple[float, float] | None:
    return (timing.flops / timing.bytes, timing.gflops / 1e3) if timing.flops and timing.bytes else None


def _draw(
    axis: "Axes",
    drawn: Sequence[tuple[str, str, Line]],
    contestants: Sequence[str],
    marker: str | None = None,
    prefix: str = "",
) -> None:
    families = list(dict.fromkeys(family for _, family, _ in drawn))
    for who, family, line in drawn:
        kind = families.index(family)
        style: dict[str, Any] = {"linestyle": STYLES[kind % len(STYLES)], "markersize": 4}
        axis.plot(
            *zip(*line, strict=True),
            color=COLORS[contestants.index(who) % len(COLORS)],
            marker=marker or MARKERS[kind % len(MARKERS)],
            label=prefix + (f"{who}, {family}" if len(families) > 1 else who),
            zorder=3 if who == OURS else 2,  # where others have the same value
            **style,
        )


def _finish(axis: "Axes") -> None:
    axis.grid(visible=True, which="major", alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=8)
