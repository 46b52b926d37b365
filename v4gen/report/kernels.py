"""Compiled kernels as a table for the terminal."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from v4gen.plan.target import TARGETS
from v4gen.run.compile import KernelReport, Resources


def kernel_table(package: str, reports: Sequence[KernelReport]) -> Table:
    """One line a kernel and target: how far it got, and its resources against the target's limits."""
    table = Table(title=f"{package}: kernels", title_justify="left", box=None, pad_edge=False)
    for column in ("kernel", "target", ""):
        table.add_column(column, no_wrap=True)
    for column in ("registers", "spills", "shared memory", "matrix unit", "s"):
        table.add_column(column, justify="right", no_wrap=True)
    for report in reports:
        stage = Text(str(report.stage), style="green" if report.passed else "bold red")
        cells = _resource_cells(report.resources, report.target)
        table.add_row(report.kernel, report.target, stage, *cells, f"{report.seconds:.1f}")
    return table


def kernel_problems(reports: Sequence[KernelReport]) -> list[str]:
    """A sentence for each kernel that failed."""
    return [f"{report.kernel} on {report.target}: {report.problem}" for report in reports if not report.passed]


def _resource_cells(resources: Resources | None, target: str) -> tuple[str, ...]:
    if resources is None:
        return ("-",) * 4
    facts = TARGETS[target]
    used = [f"{count} {name}" for name, count in resources.instructions.items() if count]
    return (
        f"{resources.registers} / {facts.registers_per_thread}",
        str(resources.spill_bytes),
        f"{resources.shared_memory / 1024:.1f} / {facts.shared_memory // 1024} KiB",
        ", ".join(used) or "none",
    )
