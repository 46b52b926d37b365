"""Hold packages against what is on disk."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from io import StringIO
from itertools import takewhile
from pathlib import Path
from typing import Any

from v4gen.emit.layout import same_code
from v4gen.emit.package import Package
from v4gen.emit.standing import Standing, is_generated, read_text, standing

NOTHING_LOCKED: Mapping[str, str] = {}


class Drift(StrEnum):
    """How what is on disk departs from what the specs give. The last three are notices, which do not fail a check."""

    MISSING = "missing"
    EDITED = "edited"  # by hand: `generate` will not overwrite it
    OUTDATED = "outdated"  # as v4gen left it, but the output would differ now
    ORPHAN = "orphan"  # generated once, by a spec that is gone
    COSMETIC = "cosmetic"  # the same code in another layout, or, compared as IR, the same kernels
    STALE_EVIDENCE = "stale-evidence"  # validated, but not these bytes
    TOOLCHAIN = "toolchain"  # validated, but with another toolchain than is installed here

    @property
    def is_notice(self) -> bool:
        return self in (Drift.COSMETIC, Drift.STALE_EVIDENCE, Drift.TOOLCHAIN)


class Effect(StrEnum):
    """What a changed module means for the kernels, as far as their IR was compared."""

    COSMETIC = "cosmetic"
    SEMANTIC = "semantic"


NOT_OURS = "v4gen did not generate it"


@dataclass(frozen=True)
class FileDrift:
    """One file that is not what the specs give.

    `diff` is unified, from the file on disk to the text due; `line` is the first line on disk that differs; `reason`
    says why, as the end of a sentence. `effect` is None where no IR was compared.
    """

    path: Path
    kind: Drift
    diff: str = ""
    line: int = 1
    reason: str = ""
    effect: Effect | None = None

    def as_data(self) -> dict[str, Any]:
        """JSON-ready data, keys in a fixed order."""
        return {
            "path": self.path.as_posix(),
            "kind": str(self.kind),
            "line": self.line,
            "reason": self.reason,
            "effect": self.effect and str(self.effect),
            "diff": self.diff,
        }


def compare(package: Package, folder: Path, locked: Mapping[str, str] = NOTHING_LOCKED) -> tuple[FileDrift, ...]:
    """Every file of `package` that is missing from `folder` or differs there; line endings do not count.

    `locked` has the digests of what v4gen last emitted there.
    """
    found = (_compare_file(folder / path, text, locked.get(path)) for path, text in sorted(package.files.items()))
    return tuple(drift for drift in found if drift)


def orphans(packages: Sequence[Package], output: Path) -> tuple[FileDrift, ...]:
    """Files below `output` that say that v4gen generated them, and that none of `packages` holds."""
    due = {output / package.name / path for package in packages for path in package.files}
    return tuple(orphan(path) for path in sorted(output.glob("*/*.py")) if path not in due and is_generated(path))


def orphan(path: Path) -> FileDrift:
    """The drift of a file that should be gone."""
    return replace(_drift(path, Drift.ORPHAN, ""), reason="no spec gives it")


def _compare_file(path: Path, due: str, locked: str | None) -> FileDrift | None:
    match standing(path, due, locked):
        case Standing.DUE:
            return None
        case Standing.ABSENT:
            return _drift(path, Drift.MISSING, due)
        case found if found is not Standing.FOREIGN and path.suffix == ".py" and same_code(read_text(path) or "", due):
            return _drift(path, Drift.COSMETIC, due)
        case Standing.OURS:
            return _drift(path, Drift.OUTDATED, due)
        case Standing.FOREIGN:
            return replace(_drift(path, Drift.EDITED, due), reason=NOT_OURS)
        case _:
            return _drift(path, Drift.EDITED, due)


def _drift(path: Path, kind: Drift, due: str) -> FileDrift:
    found, lines = _lines(read_text(path) or ""), _lines(due)
    equal = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(found, lines, strict=False)))
    first = max(1, min(equal + 1, len(found)))
    return FileDrift(path, kind, "".join(_diff_lines(found, lines, path.as_posix())), first)


def _lines(text: str) -> list[str]:
    # Unlike str.splitlines: a form feed or a line separator is no line's end.
    return list(StringIO(text))


def _diff_lines(found: list[str], due: list[str], path: str) -> Iterator[str]:
    for line in difflib.unified_diff(found, due, f"{path} (on disk)", f"{path} (generated)"):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
