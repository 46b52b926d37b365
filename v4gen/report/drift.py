"""Drift as diagnostics, for every format that a program or a person reads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from v4gen.diagnostic import Diagnostic, Severity, Span
from v4gen.emit.compare import NOT_OURS, Drift, FileDrift

_SENTENCES = {
    Drift.MISSING: "a generated file is missing",
    Drift.EDITED: "this generated file was edited",
    Drift.OUTDATED: "this generated file is outdated",
    Drift.ORPHAN: "this generated file is an orphan",
    Drift.COSMETIC: "this generated file differs cosmetically",
    Drift.STALE_EVIDENCE: "the evidence is stale",
    Drift.TOOLCHAIN: "the toolchain is another",
}
_HINTS = {
    Drift.MISSING: "run `v4gen generate`",
    Drift.EDITED: "change the spec, or run `v4gen generate` with `--merge` or `--force`",
    Drift.OUTDATED: "run `v4gen generate`, and look at what changed",
    Drift.ORPHAN: "run `v4gen generate`, which removes it if it was not edited",
}


def drift_diagnostics(drift: Sequence[FileDrift], root: Path, *, strict: bool) -> list[Diagnostic]:
    """A diagnostic for each entry, its file relative to `root`; with `strict`, notices are errors too."""
    return [_diagnostic(entry, root, strict) for entry in drift]


def _diagnostic(entry: FileDrift, root: Path, strict: bool) -> Diagnostic:
    severity = Severity.NOTICE if entry.kind.is_notice and not strict else Severity.ERROR
    reason = f": {entry.reason}" if entry.reason else ""
    span = Span(relative(entry.path, root), entry.line, 1)
    return Diagnostic(severity, str(entry.kind), _SENTENCES[entry.kind] + reason, span, hint=_hint(entry))


def _hint(entry: FileDrift) -> str | None:
    return "move it, and run `v4gen generate`" if entry.reason == NOT_OURS else _HINTS.get(entry.kind)


def relative(path: Path, root: Path) -> str:
    """`path` from `root`, with `/` between names; as it is where they have nothing in common."""
    try:
        return Path(os.path.relpath(path, root)).as_posix()
    except ValueError:  # another drive of Windows
        return path.as_posix()


def summary(drift: Sequence[FileDrift], packages: int, *, strict: bool) -> str:
    """The last line of a check."""
    failing = sum(strict or not entry.kind.is_notice for entry in drift)
    checked = f"{packages} package{'s' * (packages != 1)} checked"
    if failing:
        edited = any(entry.kind is Drift.EDITED for entry in drift)
        way_out = "run `v4gen generate`" + (", with `--merge` or `--force` for edited files" if edited else "")
        return f"{checked}, {failing} finding{'s' * (failing != 1)}: {way_out}"
    notices = f", {len(drift)} notice{'s' * (len(drift) != 1)}" if drift else ""
    return f"{checked}, as the specs say{notices}"
