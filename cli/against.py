"""What a benchmark is held against: a record, or that which a lock names."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .session import failure

if TYPE_CHECKING:
    from v4gen.read.spec import Spec
    from v4gen.run.contest import Shape
    from v4gen.run.regression import Verdict
    from v4gen.run.timing import Contest


def recorded_contest(against: Path, spec: "Spec", device: str) -> "Contest":
    """The contest of the record. Raises DiagnosticError where there is none, or it is of another device."""
    from v4gen.emit.benchmark import noted_record, read_record
    from v4gen.emit.lock import LOCK_NAME
    from v4gen.run.record import device_name
    from v4gen.run.timing import read_contest

    path = noted_record(against, spec.name, device) if against.name == LOCK_NAME else against
    record = read_record(path)
    try:
        contest, name = read_contest(record["bench"]), record["machine"]["name"]
    except (KeyError, TypeError, ValueError) as error:
        hint = "write it anew with `v4gen bench --record FILE`"
        raise failure("bad-record", f"cannot use the record `{path.as_posix()}`: {error!r}", hint) from error
    if name != device_name(device):
        hint = "ratios of one kind of device do not tell about another: bench there, or write a record here"
        raise failure("other-device", f"`{path.as_posix()}` is of {name}, this is {device_name(device)}", hint)
    return contest


def tasks_of(contest: "Contest") -> tuple[str, ...]:
    """The tasks that the package was timed at."""
    from v4gen.run.timing import OURS

    return tuple(dict.fromkeys(timing.task for timing in contest.timings if timing.who == OURS))


def rivals_of(contest: "Contest") -> tuple[str, ...]:
    """The rivals that were timed."""
    from v4gen.run.rivals import RIVALS
    from v4gen.run.timing import COPY, MATMUL

    found = dict.fromkeys(timing.who for timing in contest.timings if timing.task not in (MATMUL, COPY))
    return tuple(who for who in found if who in RIVALS)


def require_comparison(found: "Sequence[Verdict]", shapes: "Sequence[Shape]") -> None:
    """Raise DiagnosticError where nothing was compared."""
    if not any(verdict.recorded for verdict in found):
        told = ", ".join(map(str, shapes))
        raise failure("nothing-compared", f"the record has none of the shapes and tasks that were timed: {told}")
