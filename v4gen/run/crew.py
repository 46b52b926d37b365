"""Compilers at work in processes beside this one. A schedule that nobody tried may crash one: that is its result."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

from v4gen.run.compile import KernelReport, Stage, compile_kernel

Task = tuple[Any, ...]  # the arguments of `compile_kernel`


@dataclass(frozen=True)
class _Pending:
    """A task that a process is at, and the number that came with it."""

    number: int
    task: Task
    future: "Future[KernelReport]"


def compiled(
    tasks: Iterator[tuple[int, Task]], workers: int, patience: Callable[[int], float | None], *, to_run: bool
) -> Iterator[tuple[int, KernelReport]]:
    """A report for each task, by the number that came with it, in their order.

    A task is taken from `tasks` only once there is a process for it, so that what decides about it decides late.
    `patience` tells how many seconds to wait for a report, None being as long as it takes; once one has not come in
    time, what is still being compiled is given up.
    """
    pending: list[_Pending] = []
    pool = _pool(workers)

    def report(entry: _Pending, seconds: float | None) -> tuple[int, KernelReport]:
        try:
            return entry.number, entry.future.result(seconds)
        except BrokenProcessPool:  # by this task or another: alone it shows by which
            return entry.number, alone(compile_kernel, entry.task, to_run=to_run)

    try:
        for number, task in tasks:
            try:
                future = pool.submit(compile_kernel, *task, to_run=to_run)
            except BrokenProcessPool:
                pool = _pool(workers)
                future = pool.submit(compile_kernel, *task, to_run=to_run)
            pending.append(_Pending(number, task, future))
            if len(pending) > workers:
                yield report(pending[0], patience(pending[0].number))
                pending.pop(0)
        while pending:
            yield report(pending[0], patience(pending[0].number))
            pending.pop(0)
    except TimeoutError:
        yield from (report(entry, None) for entry in pending if entry.future.done())
    finally:
        _end(pool)


def alone(work: Callable[..., KernelReport], task: Sequence[Any], *, to_run: bool) -> KernelReport:
    """The report of `work` in a process of its own, or that it ended it."""
    with _pool(1) as pool:
        try:
            return pool.submit(work, *task, to_run=to_run).result()
        except BrokenProcessPool:
            _, kernel, target, *_ = task
            return KernelReport(kernel, target, Stage.FAILED, 0.0, problem="the compiler's process ended")


def _end(pool: ProcessPoolExecutor) -> None:
    """End its processes now: nobody waits for what they are at."""
    for process in [*(pool._processes or {}).values()]:
        process.terminate()
    pool.shutdown(cancel_futures=True)


def _pool(workers: int) -> ProcessPoolExecutor:
    # Spawned, not forked: torch's and TileLang's threads do not survive a fork.
    return ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_silence)


def _silence() -> None:
    """Compilers print a kernel's whole source where they give up on it; why they do is in the report."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):  # what is not Python's prints too
        os.dup2(nowhere, stream)
    os.close(nowhere)
