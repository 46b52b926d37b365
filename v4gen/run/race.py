"""Who is fastest: entrants timed in turn, round by round, the slower half dropped after each until few are left."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from v4gen.run.burst import time_burst

FINALISTS = 4
FINAL_ROUNDS = 7


@dataclass(frozen=True)
class Lap:
    """What an entrant runs at one shape: a call, and how many of it make a burst."""

    call: Callable[[], Any]
    burst: int


@dataclass
class Entrant:
    """One of those that are compared, by its position in the caller's list; times in ms of a call, by shape."""

    number: int
    laps: Sequence[Lap]
    times: list[list[float]] = field(default_factory=list)

    def run(self, device: str) -> None:
        self.times.append([time_burst(lap.call, lap.burst, device) for lap in self.laps])

    def _over_shapes(self, of: Callable[[Sequence[float]], float]) -> float:
        return statistics.geometric_mean(of(times) for times in zip(*self.times, strict=True))

    @property
    def median(self) -> float:
        return self._over_shapes(statistics.median)

    @property
    def fastest(self) -> float:
        return self._over_shapes(min)

    @property
    def slowest(self) -> float:
        return self._over_shapes(max)


@dataclass(frozen=True)
class Result:
    """The finalists, the fastest first, and those that were dropped before, the last dropped first."""

    finalists: tuple[Entrant, ...]
    dropped: tuple[Entrant, ...]


def race(entrants: Sequence[Entrant], device: str, expired: Callable[[], bool]) -> Result:
    """Time all entrants; the first of them, to which the others are held, stays to the end.

    Each round is a burst of every entrant in turn, so that a drift of the device meets all of them alike. Once the time
    has `expired`, the rounds of elimination end early and the finals are run all the same.
    """
    alive, dropped = list(entrants), list[Entrant]()
    while len(alive) > FINALISTS:
        for entrant in alive:
            entrant.run(device)
        keep = FINALISTS if expired() else max(FINALISTS, ceil(len(alive) / 2))
        ranked = sorted(alive, key=lambda entrant: entrant.median)
        kept = ranked[:keep] if entrants[0] in ranked[:keep] else [*ranked[: keep - 1], entrants[0]]
        dropped[:0] = [entrant for entrant in ranked if entrant not in kept]
        alive = kept
    for entrant in alive:
        entrant.times.clear()  # rounds among many are another contest than rounds among few
    for _ in range(FINAL_ROUNDS):
        for entrant in alive:
            entrant.run(device)
    return Result(tuple(sorted(alive, key=lambda entrant: entrant.median)), tuple(dropped))


def winner(result: Result, first: Entrant) -> Entrant:
    """The fastest finalist, if even its slowest round beats the fastest of `first`; else that one stays.

    So what is chosen over what was there is not chosen by noise, and a second race seldom ends otherwise.
    """
    best = result.finalists[0]
    return best if best.slowest < first.fastest else first
