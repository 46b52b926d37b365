"""A plan with its reasons as tables for the terminal."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from v4gen.plan.budget import Budget, Usage
from v4gen.plan.explain import (
    PICKED,
    CandidateLine,
    Cost,
    Explanation,
    KernelExplanation,
    SelectionLine,
    TargetExplanation,
)
from v4gen.plan.target import TARGETS, Peak


def explanation_tables(explanation: Explanation) -> RenderableType:
    """For each target: the schedules, why they are so, what was looked at and left, and the costs."""
    return Group(*(part for entry in explanation.targets for part in _target(explanation, entry)))


def _target(explanation: Explanation, entry: TargetExplanation) -> Iterator[RenderableType]:
    yield Text(f"{explanation.spec} on {entry.target}", style="bold")
    yield Text(_devices(entry), style="dim")
    yield _schedules(entry)
    yield _reasons(entry)
    for kernel in entry.kernels:
        if len(kernel.candidates) > 1:
            yield _candidates(kernel)
    if entry.selection:
        yield _selection(entry)
    yield _costs(explanation, entry)
    yield Text(_note(explanation, entry), style="dim")
    yield Text()


def _devices(entry: TargetExplanation) -> str:
    needed = f", with {entry.shared_memory / 1024:.1f} KiB of shared memory a block" if entry.shared_memory else ""
    return f"for {entry.devices}{needed if TARGETS[entry.target].is_portable else ''}"


def _table(title: str, left: tuple[str, ...], right: tuple[str, ...]) -> Table:
    table = Table(title=title, title_justify="left", title_style="italic", box=None, pad_edge=False)
    for column in left:
        table.add_column(column, no_wrap=True)
    for column in right:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _schedules(entry: TargetExplanation) -> Table:
    table = _table("schedules", ("kernel", "sizes"), ("threads", "padding", "shared memory", "registers"))
    for kernel in entry.kernels:
        if kernel.picked is None:
            table.add_row(kernel.kernel, Text("none fits", style="bold red"), "-", "-", "-", "-")
            continue
        picked = kernel.picked
        sizes = {name: size for name, size in picked.sizes.items() if name != "threads"}
        padding = f"{kernel.padding} heads" if kernel.padding else "none"
        shared, registers = _needs(picked.usage, picked.limit)
        table.add_row(kernel.kernel, _sizes(sizes), str(kernel.threads), padding, shared, registers)
    return table


def _reasons(entry: TargetExplanation) -> Table:
    table = _table("why", ("kernel", "size", "because"), ())
    for kernel in entry.kernels:
        for reason in kernel.reasons:
            table.add_row(kernel.kernel, f"{reason.size} {reason.value}", reason.why)
    return table


def _candidates(kernel: KernelExplanation) -> Table:
    return _lines(f"{kernel.kernel}: candidates, best first", kernel.candidates)


def _selection(entry: TargetExplanation) -> Table:
    return _lines("selection: schedules by width", entry.selection)


def _lines(title: str, lines: Sequence[CandidateLine | SelectionLine]) -> Table:
    table = _table(title, ("sizes",), ("shared memory", "registers"))
    table.add_column("outcome")
    for line in lines:
        outcome = Text(line.outcome, style="green" if line.outcome == PICKED else "")
        table.add_row(_sizes(line.sizes), *_needs(line.usage, line.limit), outcome)
    return table


def _costs(explanation: Explanation, entry: TargetExplanation) -> Table:
    title = f"least cost of one causal sequence of {explanation.length} tokens, {explanation.keys} keys"
    table = _table(title, ("step",), ("GFLOP", "MB moved", "MB cached", "floor, datasheet", "bound by"))
    for cost in entry.costs:
        table.add_row(*_cost_cells(cost))
    return table


def _cost_cells(cost: Cost) -> tuple[str, ...]:
    return (
        cost.step,
        f"{cost.flops / 1e9:.1f}" if cost.flops else "-",
        f"{cost.bytes / 1e6:.1f}",
        f"{cost.cache_bytes / 1e6:.1f}" if cost.cache_bytes else "-",
        "-" if cost.floor_ms is None else f"{cost.floor_ms:.3f} ms",
        cost.bound or "-",
    )


def _note(explanation: Explanation, entry: TargetExplanation) -> str:
    chunks = -(-explanation.length // entry.chunk_queries)
    scratch = f"Scratch memory holds the scores of {entry.chunk_queries} queries at a time: {chunks} chunks."
    return f"{scratch} {_peak(entry.peak)}"


def _peak(peak: Peak | None) -> str:
    if peak is None:
        return "No floor: CPUs differ too much."
    rates = f"{peak.flops / 1e12:.0f} TFLOP/s dense, {peak.bandwidth / 1e12:.1f} TB/s"
    return f"Floors are of {peak.device}: {rates} ({peak.source}), not measured."


def _needs(usage: Usage, limit: Budget) -> tuple[str, str]:
    shared = f"{usage.shared_memory / 1024:.1f} / {limit.shared_memory / 1024:.0f} KiB"
    return shared, f"{usage.registers} / {limit.registers}" if limit.registers else "-"


def _sizes(sizes: dict[str, int]) -> str:
    return ", ".join(f"{name} {size}" for name, size in sizes.items())
