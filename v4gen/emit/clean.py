"""What can go from disk: what killed runs left behind, and packages that v4gen can make again byte for byte."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from v4gen.emit.format import TEMPORARY
from v4gen.emit.lock import LOCK_NAME
from v4gen.emit.merge import base_path
from v4gen.emit.package import FILES, Package
from v4gen.emit.standing import Standing, standing
from v4gen.emit.write import Change, leftovers

# A formatter at work keeps its folder for seconds.
ABANDONED = 3600

_TEMPORARY = re.compile(re.escape(TEMPORARY) + r"[a-z0-9_]{8}")


@dataclass(frozen=True)
class Kept:
    """A package that stays, and the file that is why."""

    package: str
    path: Path


def stale_files(output: Path, packages: Sequence[Package]) -> tuple[Path, ...]:
    """Files that a killed process staged below `output`. Ask only while no other process writes there."""
    found = leftovers(output, [LOCK_NAME])
    for package in packages:
        found += leftovers(output / package.name, {*FILES, *(base_path(Path(file)).name for file in FILES)})
    return tuple(found)


def stale_folders() -> tuple[Path, ...]:
    """Folders in which a killed process formatted; those that another process may be using are left out."""
    oldest = time.time() - ABANDONED
    folders = (path for path in Path(tempfile.gettempdir()).glob(f"{TEMPORARY}*") if _TEMPORARY.fullmatch(path.name))
    return tuple(sorted(path for path in folders if _is_abandoned(path, oldest)))


def removable(packages: Sequence[Package], output: Path) -> tuple[tuple[Change, ...], tuple[Kept, ...]]:
    """Removals of the packages that are on disk exactly as they would be generated, and the packages that are not.

    What else lies in a package's folder stays, and its folder with it.
    """
    changes: list[Change] = []
    kept: list[Kept] = []
    for package in packages:
        places = {output / package.name / path: text for path, text in package.files.items()}
        found = {path: standing(path, text, None) for path, text in places.items()}
        other = [path for path, whose in found.items() if whose not in (Standing.DUE, Standing.ABSENT)]
        if other:
            kept.append(Kept(package.name, other[0]))
        else:
            changes += [Change(path, None) for path, whose in found.items() if whose is Standing.DUE]
    return tuple(changes), tuple(kept)


def _is_abandoned(path: Path, oldest: float) -> bool:
    try:
        about = path.lstat()
    except OSError:
        return False
    mine = not hasattr(os, "getuid") or about.st_uid == os.getuid()
    return path.is_dir() and not path.is_symlink() and mine and about.st_mtime < oldest
