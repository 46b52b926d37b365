"""A progress line on standard error for work that takes longer than a second; nothing where that is no terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(title: str, *, quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    """A function to call with what is being done, its position from 0, and how many there are."""
    if quiet or not sys.stderr.isatty():
        yield lambda name, position, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn(title),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as display:
        task = display.add_task("", total=None)

        def show(name: str, position: int, total: int) -> None:
            display.update(task, description=name, completed=position, total=total)

        yield show
