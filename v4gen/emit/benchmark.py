"""The lock's word on which record a package's benchmark is held against."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from v4gen.diagnostic import Diagnostic, DiagnosticError, Severity
from v4gen.digest import digest_bytes, digest_data
from v4gen.emit.evidence import lock_change
from v4gen.emit.exclusive import exclusive
from v4gen.emit.lock import LOCK_NAME, Benchmark, Lock, read_lock
from v4gen.emit.write import write


def read_record(path: Path) -> dict[str, Any]:
    """A benchmark's record. Raises DiagnosticError where the file is none."""
    try:
        record = json.loads(path.read_bytes())
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from error
    except ValueError as error:
        raise _unusable(path, f"it is no JSON: {error}") from error
    if not isinstance(record, dict) or not {"bench", "machine", "files"} <= set(record):
        raise _unusable(path, "it is none of a benchmark")
    return record


def note_benchmark(output: Path, name: str, path: Path) -> bool:
    """Note the record at `path` in the lock of `output`, if it is of the bytes that the lock names; returns whether.

    Raises DiagnosticError where the file is no record of a benchmark.
    """
    record = read_record(path)
    with exclusive(output):
        lock = read_lock(output) or Lock()
        entry = lock.packages.get(name)
        if entry is None or entry.files != record["files"]:
            return False
        place = Path(os.path.relpath(path.resolve(), output.resolve())).as_posix()
        timed = Benchmark(digest_data(record["files"]), place, digest_bytes(path.read_bytes()))
        benchmarks = {**entry.benchmarks, record["machine"]["device"]: timed}
        write(list(lock_change(output, Lock({**lock.packages, name: replace(entry, benchmarks=benchmarks)}))))
        return True


def noted_record(lock: Path, name: str, device: str) -> Path:
    """The record that the file `lock` names for a package on a device.

    Raises DiagnosticError where it names none, and where the record is gone or another now.
    """
    found = (read_lock(lock.parent) or Lock()).packages.get(name)
    timed = found.benchmarks.get(device) if found else None
    if timed is None:
        hint = "time it with `v4gen bench --record FILE`, or take a record with `v4gen bench --accept FILE`"
        message = f"`{lock.as_posix()}` names no benchmark of `{name}` on {device}"
        raise DiagnosticError([Diagnostic(Severity.ERROR, "no-benchmark", message, hint=hint)])
    path = lock.parent / timed.path
    if read_record(path) and digest_bytes(path.read_bytes()) != timed.record:
        raise _unusable(path, f"it is not the one that `{LOCK_NAME}` names")
    return path


def _unusable(path: Path, reason: str) -> DiagnosticError:
    message = f"cannot use the record `{path.as_posix()}`: {reason}"
    hint = "restore it, or write it anew with `v4gen bench --record FILE`"
    return DiagnosticError([Diagnostic(Severity.ERROR, "bad-record", message, hint=hint)])
