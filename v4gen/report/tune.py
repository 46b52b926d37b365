"""A search for schedules, for the terminal."""

from collections import Counter

from rich.console import Group
from rich.table import Table
from rich.text import Text

from v4gen.run.trial import Fate, Log, Trial

SHOWN = (Fate.PICKED, Fate.FINALIST)


def tune_report(log: Log) -> Group:
    """For each kernel what became of its schedules, and the finalists."""
    parts: list[Table | Text] = []
    for kernel in dict.fromkeys(trial.kernel for trial in log.trials):
        trials = log.of(kernel)
        counts = Counter(trial.fate for trial in trials)
        told = ", ".join(f"{counts[fate]} {fate}" for fate in Fate if counts[fate])
        admitted = len(trials) - counts[Fate.EXCEEDS]
        parts.append(
            Text(f"{log.spec} on {log.target}, {kernel}: {len(trials)} schedules, {admitted} admitted", "bold")
        )
        parts.append(Text(told, style="dim"))
        if finalists := sorted((t for t in trials if t.fate in SHOWN), key=lambda trial: trial.median_ms):
            parts.append(_table(finalists))
    return Group(*parts)


def _table(finalists: list[Trial]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for column in ("ms", "fastest … slowest", "registers"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("")
    for trial in finalists:
        table.add_row(
            sizes(trial),
            f"{trial.median_ms:.3f}",
            f"{trial.fastest_ms:.3f} … {trial.slowest_ms:.3f}",
            str(trial.registers or "-"),
            f"{trial.reason}{', picked' * (trial.fate is Fate.PICKED)}",
        )
    return table


def sizes(trial: Trial) -> str:
    """The schedule's sizes without the kernel's name."""
    return ", ".join(f"{name.removeprefix(trial.kernel + '_')} {size}" for name, size in trial.pins.items())


def notes(log: Log) -> dict[str, str]:
    """For each kernel that is pinned, by its first pin: how far ahead the pick was, of whom, and where."""
    where = f"{', '.join(log.shapes)} on {log.machine['name']}" if log.shapes else ""
    return {
        next(iter(pick.pins)): (
            f"{kernel}: the plan's own takes {pick.over_default:.1%} longer, "
            f"the runner-up {pick.over_runner_up:.1%}; {where}"
        )
        for kernel, pick in log.picks.items()
        if not pick.is_default
    }
