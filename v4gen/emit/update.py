"""Bring an output folder up to date: every change and every problem is known before the first file is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path, PurePosixPath

from v4gen.diagnostic import Diagnostic, DiagnosticError, Severity, Span
from v4gen.digest import digest_bytes, digest_text
from v4gen.emit.drift import find_drift, leftovers
from v4gen.emit.evidence import lock_change
from v4gen.emit.exclusive import exclusive
from v4gen.emit.layout import same_code
from v4gen.emit.lock import LOCK_NAME, Lock, lock_entry, read_lock
from v4gen.emit.merge import base_path, is_base, merge
from v4gen.emit.package import Package
from v4gen.emit.standing import Standing, is_generated, read_text, standing
from v4gen.emit.write import Change, differs, in_the_way, remove_leftovers, write


class Policy(StrEnum):
    """What becomes of a file that was edited by hand."""

    REFUSE = "refuse"
    MERGE = "merge"
    FORCE = "force"


@dataclass(frozen=True)
class Outcome:
    """What was done: files written (merged ones included), removed, and left with conflicts; and what to know of."""

    written: tuple[Path, ...] = ()
    removed: tuple[Path, ...] = ()
    conflicts: tuple[Path, ...] = ()
    remarks: tuple[Diagnostic, ...] = ()

    def as_data(self) -> dict[str, list[str]]:
        """JSON-ready data, keys in a fixed order."""
        lists = {"written": self.written, "removed": self.removed, "conflicts": self.conflicts}
        return {name: [path.as_posix() for path in paths] for name, paths in lists.items()}


def update(packages: Sequence[Package], output: Path, policy: Policy, *, complete: bool) -> Outcome:
    """Write `packages` and their lock below `output`, one process at a time; what is right keeps its bytes and times.

    With `complete`, `packages` are all there are, and files of any other go if they are still as v4gen left them.
    Raises DiagnosticError, with everything that stands in the way and nothing written. A run that was killed has left
    each file old or new, and the next one carries on.
    """
    with exclusive(output) as note:
        lock, noted = read_lock(output) or Lock(), note.read()
        _remove_staged(packages, output, lock, noted)
        review = _Review(output, lock, policy, noted)
        review.look_at(packages, complete=complete)
        if review.problems:
            raise DiagnosticError(review.problems)
        changes = [*review.changes, *lock_change(output, renewed(lock, packages, complete=complete))]
        if changes:
            note.write({**noted, **review.to_note()})
            write(changes)
        names = {package.name for package in packages}
        note.write({} if complete else {key: known for key, known in noted.items() if _package(key) not in names})
    return review.outcome()


def changes_due(packages: Sequence[Package], output: Path, *, complete: bool) -> list[Change]:
    """What would make `output` clean, edits by hand undone and orphans gone; the lock is the last of it."""
    due = {output / package.name / path: text for package in packages for path, text in package.files.items()}
    drift = find_drift(packages, output, {}, complete=complete)
    paths = [entry.path for entry in drift if not entry.kind.is_notice and entry.path != output / LOCK_NAME]
    lock = renewed(read_lock(output) or Lock(), packages, complete=complete)
    return [*(Change(path, due.get(path)) for path in paths), *lock_change(output, lock)]


def renewed(lock: Lock, packages: Sequence[Package], *, complete: bool) -> Lock:
    """The lock after `packages` are written."""
    entries = {} if complete else dict(lock.packages)
    for package in packages:
        before, now = lock.packages.get(package.name), lock_entry(package)
        entries[package.name] = before.renewed(now) if before else now
    return Lock(entries)


@dataclass
class _Review:
    """Goes through the files that are due, and collects what to do about each."""

    output: Path
    lock: Lock
    policy: Policy
    noted: Mapping[str, Sequence[str]]
    changes: list[Change] = field(default_factory=list)
    emitted: dict[Path, str] = field(default_factory=dict)  # of the changes, those that are v4gen's alone
    conflicts: list[Path] = field(default_factory=list)
    remarks: list[Diagnostic] = field(default_factory=list)
    problems: list[Diagnostic] = field(default_factory=list)

    def look_at(self, packages: Sequence[Package], *, complete: bool) -> None:
        for package in packages:
            for path, text in package.files.items():
                self._file(self.output / package.name / path, text, self.lock.digest(package.name, path))
        for left in self._leftovers(packages, complete=complete):
            self._leftover(left, self.lock.digest(left.parent.name, left.name))

    def to_note(self) -> dict[str, list[str]]:
        """What the note is to say before the changes are made: the texts in them that are v4gen's alone."""
        keys = {_key(path, self.output): digest_text(text) for path, text in self.emitted.items()}
        return {key: sorted({*self.noted.get(key, ()), digest}) for key, digest in keys.items()}

    def outcome(self) -> Outcome:
        changed = [change for change in self.changes if not is_base(change.path)]
        written = tuple(change.path for change in changed if change.text is not None)
        removed = tuple(change.path for change in changed if change.text is None)
        return Outcome(written, removed, tuple(self.conflicts), tuple(self.remarks))

    def _file(self, path: Path, due: str, locked: str | None) -> None:
        found = self._standing(path, due, locked)
        if found is Standing.FOREIGN:
            self.problems.append(in_the_way(path))
        elif found is not Standing.EDITED or self.policy is Policy.FORCE:
            self._put(path, due)
            if is_generated(base_path(path)):
                self.changes.append(Change(base_path(path), None))
        elif path.suffix == ".py" and same_code(read_text(path) or "", due):
            self.remarks.append(_remark(path, "cosmetic", "left as it is: only its layout is another than v4gen's"))
        elif self.policy is Policy.MERGE and locked:
            self._merge(path, due, locked)
        else:
            self.problems.append(_edited(path))

    def _leftovers(self, packages: Sequence[Package], *, complete: bool) -> list[Path]:
        """Files to go: those of the lock, and those that a killed run wrote before the lock knew them."""
        due = {self.output / package.name / path for package in packages for path in package.files}
        names = {package.name for package in packages}
        noted = {self.output / key for key in self.noted if complete or _package(key) in names}
        found = {path for path in noted - due if path.is_file()}
        return sorted(found.union(leftovers(packages, self.output, self.lock, complete=complete)))

    def _standing(self, path: Path, due: str | None, locked: str | None) -> Standing:
        found = standing(path, due, locked)
        if found is Standing.EDITED and digest_bytes(path.read_bytes()) in self.noted.get(_key(path, self.output), ()):
            return Standing.OURS  # written by a run that was killed before it could say so in the lock
        return found

    def _put(self, path: Path, text: str, *, emitted: bool = True) -> None:
        if differs(path, text):
            self.changes.append(Change(path, text))
            if emitted:
                self.emitted[path] = text

    def _merge(self, path: Path, due: str, locked: str) -> None:
        try:
            merged = merge(path, due, locked)
        except DiagnosticError as error:
            self.problems += error.diagnostics
            return
        if merged.text != read_text(path):
            self._put(path, merged.text, emitted=False)
        self._put(base_path(path), due)
        if merged.conflicts:
            self.conflicts.append(path)
            message = f"{merged.conflicts} conflict{'s' * (merged.conflicts != 1)} between the edit and the new output"
            self.remarks.append(replace(_remark(path, "conflict", message), severity=Severity.ERROR))

    def _leftover(self, path: Path, locked: str | None) -> None:
        if self._standing(path, None, locked) is Standing.OURS or self.policy is Policy.FORCE:
            self.changes.append(Change(path, None))
        else:
            self.remarks.append(_remark(path, "orphan", "no spec gives this file any more, but it was edited: kept"))


def _remove_staged(packages: Sequence[Package], output: Path, lock: Lock, noted: Mapping[str, object]) -> None:
    names = {name: set(entry.files) for name, entry in lock.packages.items()}
    for package in packages:
        names.setdefault(package.name, set()).update(package.files)
    for key in noted:
        names.setdefault(_package(key), set()).add(PurePosixPath(key).name)
    for name, files in names.items():
        remove_leftovers(output / name, {*files, *(base_path(Path(file)).name for file in files)})
    remove_leftovers(output, [LOCK_NAME])


def _package(key: str) -> str:
    return key.partition("/")[0]


def _key(path: Path, output: Path) -> str:
    return path.relative_to(output).as_posix()


def _remark(path: Path, code: str, message: str) -> Diagnostic:
    return Diagnostic(Severity.WARNING, code, message, Span(path.as_posix(), 1, 1))


def _edited(path: Path) -> Diagnostic:
    return Diagnostic(
        Severity.ERROR,
        "edited",
        "this file was edited by hand and would be overwritten",
        Span(path.as_posix(), 1, 1),
        hint="`--merge` carries the edit over, `--force` drops it; better: change the spec, or wrap the package",
    )
