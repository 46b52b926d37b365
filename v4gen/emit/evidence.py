"""The lock's word on what was proved, and about which bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from v4gen.digest import digest_bytes, digest_data
from v4gen.emit.exclusive import exclusive
from v4gen.emit.lock import LOCK_NAME, Evidence, Lock, lock_text, read_lock
from v4gen.emit.write import Change, differs, write


def code_on_disk(output: Path, name: str) -> str:
    """One digest of the files that the lock names of the package `name`, as they are; empty where one is missing.

    Take it before a proof begins: whoever edits a file meanwhile has other bytes than were proved.
    """
    entry = (read_lock(output) or Lock()).packages.get(name)
    if entry is None:
        return ""
    try:
        return digest_data({path: digest_bytes((output / name / path).read_bytes()) for path in entry.files})
    except OSError:
        return ""


def record_evidence(output: Path, name: str, evidence: Evidence) -> bool:
    """Note `evidence` in the lock, if it is about the very bytes that the lock names; returns whether it is.

    What a build proved takes the place of what is known of the same bytes only where an earlier build proved that with
    other tools.
    """
    with exclusive(output):
        lock = read_lock(output) or Lock()
        entry = lock.packages.get(name)
        if entry is None or entry.code != evidence.code:
            return False
        before = entry.evidence
        known = before is not None and before.code == evidence.code
        renews = before is not None and not before.record and before.toolchain != evidence.toolchain
        if not known or renews or evidence.record:
            packages = {**lock.packages, name: replace(entry, evidence=evidence)}
            write(list(lock_change(output, Lock(packages))))
        return True


def lock_change(output: Path, lock: Lock) -> Iterator[Change]:
    """What to write so that `lock` is the lock in `output`; nothing where it is already."""
    path, text = output / LOCK_NAME, lock_text(lock)
    if differs(path, text):
        yield Change(path, text)
