"""Timing of calls in bursts: on the device's own clock on a GPU, on the system's on a CPU."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from v4gen.run.power import Meter, Watch

# A burst on a GPU lasts as long for everybody: a short one runs at clocks that a long one does not hold. Between
# bursts the card rests, so that each starts from the same state.
BURST_SECONDS = 0.06
REST_SECONDS = 0.2
MIB = 1 << 20


@dataclass(frozen=True)
class Rehearsal:
    """What one call told: MiB at its peak beyond what it returns (-1 where not known), and its milliseconds."""

    extra_mib: float
    milliseconds: float

    def burst(self, device: str) -> int:
        """How many such calls make a burst."""
        return 1 if device == "cpu" else max(1, round(BURST_SECONDS * 1e3 / self.milliseconds))


@dataclass(frozen=True)
class Sustained:
    """Calls on end: milliseconds of one, mJ of one and the clock in MHz (0 where they were not measured)."""

    milliseconds: float = 0.0
    energy_mj: float = 0.0
    sm_mhz: int = 0


@contextmanager
def threads_for(device: str) -> Iterator[None]:
    """On the CPU, torch on one thread, as the kernels are."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1 if device == "cpu" else threads)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def rehearse(call: Callable[[], Any], device: str) -> Rehearsal:
    """A call that has been compiled, once. torch does not count the CPU's memory."""
    if device == "cpu":
        return Rehearsal(-1.0, time_burst(call, 1, device))
    import torch

    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    result = call()
    torch.cuda.synchronize()
    milliseconds = (time.perf_counter() - start) * 1e3
    peak, kept = torch.cuda.max_memory_allocated(), torch.cuda.memory_allocated() - before
    del result
    return Rehearsal(float(peak - before - kept) / MIB, milliseconds)


def time_burst(call: Callable[[], Any], count: int, device: str) -> float:
    """Milliseconds of one of `count` calls on end, after a rest."""
    if device == "cpu":
        start = time.perf_counter()
        for _ in range(count):
            call()
        return (time.perf_counter() - start) * 1e3 / count
    time.sleep(REST_SECONDS)
    if count > 1:
        call()  # so that the first timed launch finds the card awake; a long call hardly notices
    return _on_the_device(call, count)


def time_on_end(call: Callable[[], Any], count: int, device: str, meter: Meter | None) -> Sustained:
    """`count` calls without a rest before them, as many as fill seconds."""
    if device == "cpu":
        return Sustained(time_burst(call, count, device))
    if meter is None:
        return Sustained(_on_the_device(call, count))
    with Watch(meter) as watch:
        milliseconds = _on_the_device(call, count)
    return Sustained(milliseconds, watch.watts * milliseconds, watch.sm_mhz)


def _on_the_device(call: Callable[[], Any], count: int) -> float:
    """Milliseconds of one of `count` calls."""
    import torch

    event: Any = torch.cuda.Event
    begin, end = event(enable_timing=True), event(enable_timing=True)
    begin.record()
    for _ in range(count):
        call()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) / count
