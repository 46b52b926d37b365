"""What a benchmark is held against: a record, or that which a lock names."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .session import failure

if TYPE_CHECKING:
    from v4gen.read.spec import Spec
    from v4gen.run.regression import Verdict
    from v4gen.run.timing import Contest


def recorded_contest(against: Path, spec: "Spec", device: str) -> "Contest":
    """The contest of the record. Raises DiagnosticError where there is none, or it is of another spec or device."""
    from v4gen.emit.benchmark import read_record
    from v4gen.run.record import device_name
    from v4gen.run.timing import read_contest

    path = _record_of(against, spec.name, device)
    record = read_record(path)
    try:
        contest, name = read_contest(record["bench"]), record["machine"]["name"]
        timed = record["bench"].get("spec", spec.name)  # older records do not tell
    except (KeyError, TypeError, ValueError) as error:
        hint = "write it anew with `v4gen bench --record FILE`"
        raise failure("bad-record", f"cannot use the record `{path.as_posix()}`: {error!r}", hint) from error
    if timed != spec.name:
        raise failure("other-spec", f"`{path.as_posix()}` is of spec `{timed}`, this is `{spec.name}`")
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


def require_comparison(verdicts: "Sequence[Verdict]", recorded: "Contest", found: "Contest") -> None:
    """Raise DiagnosticError where other kernels ran than those of the record, or nothing was compared."""
    if recorded.target and found.target and recorded.target != found.target:
        message = f"the record is of the kernels for {recorded.target}, and those for {found.target} ran"
        raise failure("other-target", message, f"write a record of these, or say `--target {recorded.target}`")
    if not any(verdict.recorded for verdict in verdicts):
        told = ", ".join(map(str, found.shapes))
        raise failure("nothing-compared", f"the record has none of the shapes and tasks that were timed: {told}")


def require_other_file(against: Path, name: str, device: str, record: Path) -> None:
    """Raise DiagnosticError where the new record would be written over that which it is held against."""
    if record.resolve() == _record_of(against, name, device).resolve():
        message = f"`--record {record.as_posix()}` would replace the record that the run is held against"
        raise failure("same-record", message, "write the new record to another file")


def noted_contest(output: Path, name: str, device: str) -> "Contest | None":
    """The contest of the record that the lock of `output` names; None without one, or where it is gone or changed."""
    from v4gen.diagnostic import DiagnosticError
    from v4gen.emit.benchmark import noted_record, read_record
    from v4gen.emit.lock import LOCK_NAME
    from v4gen.run.timing import read_contest

    try:
        return read_contest(read_record(noted_record(output / LOCK_NAME, name, device))["bench"])
    except (DiagnosticError, KeyError, TypeError, ValueError):
        return None


def require_no_narrower(noted: "Contest | None", found: "Contest", record: Path) -> None:
    """Raise DiagnosticError where the package's timings of the noted record are not all among those found."""
    from v4gen.run.timing import OURS

    ours = [timing for timing in noted.timings if timing.who == OURS] if noted else []
    lacking = [timing for timing in ours if not found.find(timing.task, OURS, timing.shape)]
    if lacking:
        message = f"`{record.as_posix()}` lacks {lacking[0].task} at {lacking[0].shape}, which the lock's record has"
        hint = f"time all of it, or take the narrower one with `v4gen bench --accept {record.as_posix()}`"
        raise failure("narrower-record", message, hint)


def _record_of(against: Path, name: str, device: str) -> Path:
    """The record itself, or that which the lock `against` names. Raises DiagnosticError where it names none."""
    from v4gen.emit.benchmark import noted_record
    from v4gen.emit.lock import LOCK_NAME

    return noted_record(against, name, device) if against.name == LOCK_NAME else against
