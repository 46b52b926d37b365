"""Compilers at work in processes beside this one. A schedule that nobody tried may crash one: that is its result."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any

from v4gen.run.compile import KernelReport, Stage, compile_kernel

Task = tuple[Any, ...]  # the arguments of `compile_kernel`


def compiled(tasks: Iterator[tuple[int, Task]], workers: int, *, to_run: bool) -> Iterator[tuple[int, KernelReport]]:
    """A report for each task, by the number that came with it, in their order.

    A task is taken from `tasks` only once there is a process for it, so that what decides about it decides late. With
    one worker the work is done in this process.
    """
    if workers == 1:
        yield from ((number, compile_kernel(*task, to_run=to_run)) for number, task in tasks)
        return
    pending: list[tuple[int, Task, Future[KernelReport]]] = []
    pool = _pool(workers)
    try:
        for number, task in tasks:
            try:
                future = pool.submit(compile_kernel, *task, to_run=to_run)
            except BrokenProcessPool:
                pool = _pool(workers)
                future = pool.submit(compile_kernel, *task, to_run=to_run)
            pending.append((number, task, future))
            if len(pending) > workers:
                yield _finished(*pending.pop(0), to_run=to_run)
        while pending:
            yield _finished(*pending.pop(0), to_run=to_run)
    finally:
        pool.shutdown(cancel_futures=True)


def _finished(number: int, task: Task, future: "Future[KernelReport]", *, to_run: bool) -> tuple[int, KernelReport]:
    """The report; where a process of the pool has died, of the task alone in a process of its own."""
    try:
        return number, future.result()
    except BrokenProcessPool:
        return number, alone(compile_kernel, task, to_run=to_run)


def alone(work: Callable[..., KernelReport], task: Sequence[Any], *, to_run: bool) -> KernelReport:
    """The report of `work` in a process of its own, or that it ended it."""
    with _pool(1) as pool:
        try:
            return pool.submit(work, *task, to_run=to_run).result()
        except BrokenProcessPool:
            _, kernel, target, *_ = task
            return KernelReport(kernel, target, Stage.FAILED, 0.0, problem="the compiler's process ended")


def _pool(workers: int) -> ProcessPoolExecutor:
    # Spawned, not forked: torch's and TileLang's threads do not survive a fork.
    return ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
