"""Hold packages on disk against the oracle, each in a process of its own; whatever a case does is that case's failure.

A case may raise, hang, end its process, or leave CUDA unusable. Where a process is lost, the cases after the one that
it was at go on in a fresh one.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import connection, get_context
from pathlib import Path
from typing import TYPE_CHECKING

from v4gen.run.evidence import CaseResult, Validation
from v4gen.run.worker import Listed, Refused, Spent, work

if TYPE_CHECKING:
    from multiprocessing.context import ForkContext, SpawnContext

    from v4gen.read.spec import Spec

Progress = Callable[[str, int, int], None]
"""Called before each case with its name, how many cases are done, and how many there are in the packages begun."""

TIME_LIMIT = 300.0
"""Seconds for one case: it may be the first to need the kernels of scores, selection and both backwards, and each may
take a minute to compile on a busy machine. Without that, cases take a second."""

LAST_WORDS = 5.0
"""Seconds in which a process that has closed its end of the pipe ends by itself, and tells how."""


def validate_packages(
    packages: Sequence[tuple[Spec, Path]],
    device: str = "cpu",
    progress: Progress | None = None,
    *,
    target: str | None = None,
    jobs: int = 1,
    time_limit: float = TIME_LIMIT,
    stop_at_failure: bool = False,
    fork: bool = False,
) -> Iterator[Validation]:
    """Run every case of each spec on the package in its folder, as it is on disk, on `device`: one result a package.

    With a `target` the device takes that one's kernels or none, even where the package has others for it.
    `jobs` packages are at work at a time, and the results come in the order of `packages`. Nothing is raised for what
    a package does: one that cannot be imported, and a case that raises, ends its process or takes longer than
    `time_limit` seconds, are failed cases. With `stop_at_failure` a package's first failure ends its run. Processes are
    spawned; with `fork`, for callers without threads and CUDA, they share what is imported. They end when the iterator
    is closed, and when this process does.
    """
    runs = [_Run(spec, folder, device, target, stop_at_failure, fork) for spec, folder in packages]
    waiting, active = list(runs), list[_Run]()

    def show(run: _Run) -> None:
        if progress is not None and run.case:
            name = run.case if len(runs) == 1 else f"{run.spec.name}: {run.case}"
            progress(name, sum(len(each.results) for each in runs), sum(len(each.cases) for each in runs))

    try:
        for run in runs:
            while not run.finished:
                while waiting and len(active) < jobs:
                    active.append(waiting.pop(0))
                    active[-1].start()
                for changed in _await(active, time_limit):
                    show(changed)
                active = [each for each in active if not each.finished]
            yield run.validation()
    finally:
        for each in active:
            each.stop()


def _await(active: Sequence[_Run], time_limit: float) -> Iterator[_Run]:
    """Wait until one of the runs has a message or has run out of time, and pass on those whose case is another now."""
    remaining = min(run.since for run in active) + time_limit - time.monotonic()
    ready = connection.wait([run.messages for run in active], max(remaining, 0))
    for run in active:
        if run.messages in ready:
            run.receive()
        elif time.monotonic() - run.since > time_limit:
            run.stop()
            run.fail(f"took longer than {time_limit:g} s")
        else:
            continue
        yield run


class _Run:
    """One package being validated: its results so far, and the process that is at work on the case after them."""

    def __init__(
        self, spec: Spec, folder: Path, device: str, target: str | None, stop_at_failure: bool, fork: bool
    ) -> None:
        self.spec, self.finished, self._taken = spec, False, ""
        self.cases: Sequence[tuple[str, str]] = ()
        self.results: list[CaseResult] = []
        self._folder, self._device, self._target, self._stop_at_failure = folder, device, target, stop_at_failure
        # torch's and TileLang's threads, and CUDA, do not survive a fork
        self._context: ForkContext | SpawnContext = get_context("fork") if fork else get_context("spawn")

    @property
    def case(self) -> str:
        """The name of the case under way; empty before the package is imported and after the last case."""
        position = len(self.results)
        return self.cases[position][0] if position < len(self.cases) else ""

    def start(self) -> None:
        """Start a process at the first case without a result."""
        self.messages, sending = self._context.Pipe(duplex=False)
        position, stop_early = len(self.results), self._stop_at_failure
        arguments = (sending, self._folder, self.spec, self._device, self._target, position, stop_early)
        self._process = self._context.Process(target=work, args=arguments, daemon=True)
        self._process.start()
        sending.close()  # while an end for writing is open here, the pipe does not end with the process
        self._imported, self.since = False, time.monotonic()

    def receive(self) -> None:
        """Take the message that is there, or note that the process has ended."""
        try:
            message = self.messages.recv()
        except (EOFError, OSError):
            message = Refused(self._how_it_ended())
        match message:
            case Listed():
                self._imported, self.cases, self.since = True, message.cases, time.monotonic()
                self._taken = message.target
            case CaseResult():
                self._add(message)
            case Refused():
                self.fail(message.error)
            case Spent():
                self._renew()

    def fail(self, error: str) -> None:
        """The case under way failed, and those after it need another process."""
        name, description = self.cases[len(self.results)] if self._imported else ("import", self._folder.name)
        self._add(CaseResult(name, description, (), time.monotonic() - self.since, error))
        if not self.finished:
            self._renew()

    def stop(self) -> None:
        """End the process, and what it has started, if it has not ended yet."""
        try:
            os.killpg(self._process.pid or 0, signal.SIGKILL)
        except ProcessLookupError:  # it has no group of its own yet, or is gone
            self._process.kill()
        self._process.join()
        self.messages.close()

    def validation(self) -> Validation:
        """What was found."""
        return Validation(self.spec.name, self._device, tuple(self.results), self._taken)

    def _add(self, result: CaseResult) -> None:
        self.results.append(result)
        self.since = time.monotonic()
        last = len(self.results) == len(self.cases) or not self._imported
        if last or (self._stop_at_failure and not result.passed):
            self.finished = True
            self.stop()

    def _renew(self) -> None:
        self.stop()
        self.start()

    def _how_it_ended(self) -> str:
        self._process.join(LAST_WORDS)
        code = self._process.exitcode
        if code is None:
            return "closed its pipe"
        return f"ended by signal {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
