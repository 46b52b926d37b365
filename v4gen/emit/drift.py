"""All drift of an output folder: files against their lock, files that no spec gives, the lock itself, evidence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from v4gen.digest import digest_text
from v4gen.emit.compare import NOTHING_LOCKED, Drift, FileDrift, compare, orphan, orphans
from v4gen.emit.lock import LOCK_NAME, Lock, PackageLock, read_lock
from v4gen.emit.package import Package
from v4gen.emit.standing import read_text

_FORMATTER_HINT = "only the layout differs: exclude this folder from the formatter of the repository"


def find_drift(
    packages: Sequence[Package], output: Path, toolchain: Mapping[str, str], *, complete: bool
) -> tuple[FileDrift, ...]:
    """What in the folder `output` is not what `packages` and its lock say.

    With `complete`, `packages` are all there are, and what belongs to none of them is an orphan. `toolchain` has the
    versions installed here. Raises DiagnosticError when the lock cannot be used.
    """
    lock = read_lock(output)
    known = lock or Lock()
    files = [drift for package in packages for drift in _package_drift(package, output, known)]
    gone = [orphan(path) for path in leftovers(packages, output, known, complete=complete)]
    if complete:
        paths = {drift.path for drift in gone}
        gone += [drift for drift in orphans(packages, output) if drift.path not in paths]
    notices = [notice for package in packages for notice in _evidence_drift(package.name, output, known, toolchain)]
    return (*files, *gone, *_lock_drift(packages, output, lock, complete=complete), *notices)


def leftovers(packages: Sequence[Package], output: Path, lock: Lock, *, complete: bool) -> Iterator[Path]:
    """Files on disk that v4gen emitted, by the lock, and that none of `packages` holds any more."""
    due = {package.name: package.files for package in packages}
    for name, entry in sorted(lock.packages.items()):
        if complete or name in due:
            paths = (output / name / path for path in sorted(entry.files) if path not in due.get(name, {}))
            yield from (path for path in paths if path.is_file())


def _package_drift(package: Package, output: Path, lock: Lock) -> Iterator[FileDrift]:
    entry = lock.packages.get(package.name)
    for drift in compare(package, output / package.name, entry.files if entry else NOTHING_LOCKED):
        path = drift.path.relative_to(output / package.name).as_posix()
        yield replace(drift, reason=_reason(drift.kind, path, package, entry))


def _reason(kind: Drift, path: str, package: Package, entry: PackageLock | None) -> str:
    if kind is Drift.COSMETIC:
        return _FORMATTER_HINT
    if entry is None:
        return "the lock does not know this package"
    if entry.files.get(path) == digest_text(package.files[path]):
        return "changed by hand" if kind is Drift.EDITED else ""
    causes = ", ".join(entry.provenance.changes(package.provenance)) or "this v4gen emits it differently"
    return f"changed by hand, and {causes}" if kind is Drift.EDITED else causes


def _lock_drift(packages: Sequence[Package], output: Path, lock: Lock | None, *, complete: bool) -> Iterator[FileDrift]:
    """The lock, where it is not true of files that are as they should be; files that drift are reported themselves."""
    if lock is None:
        yield FileDrift(output / LOCK_NAME, Drift.MISSING, reason="no lock tells whose these files are")
        return
    names = {package.name for package in packages}
    wrong = [package.name for package in packages if _is_untrue(package, output, lock)]
    wrong += [name for name in lock.packages if complete and name not in names and not _is_there(name, output, lock)]
    if wrong:
        listed = ", ".join(f"`{name}`" for name in wrong)
        yield FileDrift(output / LOCK_NAME, Drift.OUTDATED, reason=f"it does not say what is there of {listed}")


def _is_untrue(package: Package, output: Path, lock: Lock) -> bool:
    return any(
        lock.digest(package.name, path) != digest_text(text) and read_text(output / package.name / path) == text
        for path, text in package.files.items()
    )


def _is_there(name: str, output: Path, lock: Lock) -> bool:
    return any((output / name / path).is_file() for path in lock.packages[name].files)


def _evidence_drift(name: str, output: Path, lock: Lock, toolchain: Mapping[str, str]) -> Iterator[FileDrift]:
    entry = lock.packages.get(name)
    if entry is None or entry.evidence is None:
        return
    if entry.evidence.code != entry.code:
        reason = f"`{name}` was validated before it changed: run `v4gen build` where torch and tilelang are"
        yield FileDrift(output / LOCK_NAME, Drift.STALE_EVIDENCE, reason=reason)
        return
    proved = entry.evidence.toolchain
    both = sorted(proved.keys() & toolchain.keys())
    other = [f"{tool} {proved[tool]} (here {toolchain[tool]})" for tool in both if proved[tool] != toolchain[tool]]
    if other:
        reason = f"`{name}` was validated with {', '.join(other)}: `v4gen build` renews it"
        yield FileDrift(output / LOCK_NAME, Drift.TOOLCHAIN, reason=reason)
