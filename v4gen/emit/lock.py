"""The lock: what v4gen generated into a folder, byte by byte, and from what; committed beside the packages.

TOML with one entry a line in a fixed order, so that two branches' changes merge and a conflict can be read. An entry
speaks of the bytes that v4gen emitted, which a file on disk may have left since: that is what makes an edit an edit.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from v4gen import __version__
from v4gen.diagnostic import Diagnostic, DiagnosticError, Severity, Span
from v4gen.digest import digest_data, digest_text
from v4gen.emit.api import public_api
from v4gen.emit.package import Package
from v4gen.emit.provenance import Provenance

LOCK_NAME = "v4gen.lock"
LOCK_VERSION = 1
HEADER = (
    "# Written by v4gen; not for editing. Commit it beside the packages: it tells a hand's edit from v4gen's output.\n"
)

_PROVENANCE = ("spec", "plan", "templates", "formatter")


@dataclass(frozen=True, slots=True)
class Evidence:
    """Who compiled and validated a package, and the digest of the record that says so (empty where none was written).

    `code` names the bytes that this is about; the evidence is stale once the package's are others.
    """

    code: str
    device: str
    toolchain: Mapping[str, str]
    record: str = ""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """The record that a later benchmark is held against: its path from the lock's folder, and its digest.

    `code` names the bytes that were timed.
    """

    code: str
    path: str
    record: str


@dataclass(frozen=True, slots=True)
class PackageLock:
    """One package: the version that emitted it, what from, its public API, and the sha256 of each file.

    What was proved of it follows, and what was measured, by device.
    """

    generator: str
    provenance: Provenance
    api: str
    files: Mapping[str, str]
    evidence: Evidence | None = None
    benchmarks: Mapping[str, Benchmark] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def code(self) -> str:
        """One digest of all files."""
        return digest_data(self.files)

    def renewed(self, now: PackageLock) -> PackageLock:
        """The entry after generating `now`: itself where only v4gen's version is another, as its output is not.

        Evidence and benchmarks stay, and name the bytes that they are about.
        """
        same = replace(self, generator=now.generator, evidence=None, benchmarks={}) == now
        return self if same else replace(now, evidence=self.evidence, benchmarks=self.benchmarks)


@dataclass(frozen=True, slots=True)
class Lock:
    """The packages of one output folder, by name."""

    packages: Mapping[str, PackageLock] = field(default_factory=lambda: MappingProxyType({}))

    def digest(self, package: str, path: str) -> str | None:
        """sha256 of what v4gen emitted at `path` of `package`; None where the lock knows of nothing there."""
        entry = self.packages.get(package)
        return entry.files.get(path) if entry else None


def lock_entry(package: Package) -> PackageLock:
    """The entry of `package` as it is emitted now."""
    digests = {path: digest_text(text) for path, text in sorted(package.files.items())}
    return PackageLock(__version__, package.provenance, digest_data(public_api(package.files)), digests)


def read_lock(output: Path) -> Lock | None:
    """The lock in the folder `output`; None where there is none.

    Raises DiagnosticError when it cannot be read, was left in the middle of a merge, or is of a newer v4gen.
    """
    path = output / LOCK_NAME
    try:
        text = path.read_bytes().decode("utf-8", errors="replace").replace("\r\n", "\n")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from error
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _unusable(path, f"it is not valid TOML: {error}", _conflict(path, text)) from error
    if document.get("version") != LOCK_VERSION:
        raise _unusable(path, f"its version is {document.get('version')!r}, and this v4gen reads {LOCK_VERSION}")
    try:
        return Lock({name: _entry(name, table) for name, table in document.get("package", {}).items()})
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _unusable(path, f"an entry is not as v4gen writes it: {error}") from error


def lock_text(lock: Lock) -> str:
    """The text of the lock's file."""
    return HEADER + "".join(f"{line}\n" for line in _lines(lock))


def _lines(lock: Lock) -> Iterator[str]:
    yield f"version = {LOCK_VERSION}"
    for name, entry in sorted(lock.packages.items()):
        made_from = {key: getattr(entry.provenance, key) for key in _PROVENANCE}
        yield from _table(f"package.{name}", {"generator": entry.generator, **made_from, "api": entry.api})
        for target, sizes in sorted(entry.provenance.schedule.items()):
            yield from _table(f"package.{name}.schedule.{target}", sizes)
        yield from _table(f"package.{name}.files", dict(sorted(entry.files.items())))
        if found := entry.evidence:
            record = {"record": found.record} if found.record else {}
            yield from _table(f"package.{name}.evidence", {"code": found.code, "device": found.device, **record})
            yield from _table(f"package.{name}.evidence.toolchain", dict(sorted(found.toolchain.items())))
        for device, timed in sorted(entry.benchmarks.items()):
            yield from _table(f"package.{name}.benchmark.{device}", asdict(timed))


def _table(name: str, entries: Mapping[str, str | int]) -> Iterator[str]:
    # A JSON string in ASCII is a TOML string too.
    yield ""
    yield f"[{name}]"
    for key, value in entries.items():
        yield f"{key if key.isidentifier() else json.dumps(key)} = {json.dumps(value)}"


def _entry(name: str, table: Mapping[str, Any]) -> PackageLock:
    # What stands in the lock may be removed from disk, so that nothing in it may lead elsewhere.
    for path in table["files"]:
        if not name.isidentifier() or not re.fullmatch(r"\w[\w.]*", path):
            raise ValueError(f"`{name}/{path}` is no file of a package")
    digests = {key: table[key] for key in _PROVENANCE}
    made_from = Provenance(**digests, schedule=MappingProxyType(dict(table.get("schedule", {}))))
    found = _evidence(table.get("evidence"))
    timed = {device: Benchmark(**entry) for device, entry in table.get("benchmark", {}).items()}
    return PackageLock(table["generator"], made_from, table["api"], dict(table["files"]), found, timed)


def _evidence(table: Mapping[str, Any] | None) -> Evidence | None:
    if table is None:
        return None
    return Evidence(table["code"], table["device"], dict(table["toolchain"]), table.get("record", ""))


def _unusable(path: Path, reason: str, span: Span | None = None) -> DiagnosticError:
    hint = "restore it from version control, or remove it and run `v4gen generate` to adopt the files anew"
    if span:
        reason, hint = "a merge left its conflict in it", "take either side, then run `v4gen generate`"
    message = f"cannot use the lock `{path.as_posix()}`: {reason}"
    return DiagnosticError([Diagnostic(Severity.ERROR, "bad-lock", message, span, hint=hint)])


def _conflict(path: Path, text: str) -> Span | None:
    """The first conflict marker of a merge."""
    found = (n for n, line in enumerate(text.split("\n"), 1) if line.startswith(("<<<<<<<", "=======", ">>>>>>>")))
    number = next(found, None)
    return Span(path.as_posix(), number, 1) if number else None
