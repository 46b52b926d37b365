"""A package on disk, imported as it stands there and called through its public functions only."""

from __future__ import annotations

import importlib
import linecache
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import FileFinder, ModuleSpec, SourceFileLoader
from itertools import count
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

_serial = count()


class _FreshLoader(SourceFileLoader):
    """Compiles the source on every import: a stale .pyc is neither read nor left behind."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


class _PrivateFinder(MetaPathFinder):
    """Finds one package directory, and the modules below it, under a private name."""

    def __init__(self, name: str, directory: Path) -> None:
        self._name = name
        self._directory = directory

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == self._name:
            origin = str(self._directory / "__init__.py")
            spec = ModuleSpec(fullname, _FreshLoader(fullname, origin), origin=origin, is_package=True)
            spec.submodule_search_locations = [str(self._directory)]
            spec.has_location = True
            return spec
        if fullname.startswith(f"{self._name}.") and path:
            return FileFinder(path[0], (_FreshLoader, [".py"])).find_spec(fullname)
        return None


class NoKernels(Exception):
    """The package has no kernels for the device, as it says."""


@dataclass(frozen=True)
class Package:
    """The modules of an emitted package; a `reference` for people to read may have been left out."""

    fwd: ModuleType
    bwd: ModuleType
    indexer: ModuleType
    root: ModuleType | None = None  # the package itself
    reference: ModuleType | None = None

    def target_for(self, device: str) -> str:
        """The target that it takes on `device`; empty if it is of a time when packages did not tell.

        Raises NoKernels if it has none for the device.
        """
        choose = getattr(self.root, "target_for", None)
        try:
            return str(choose(device)) if choose else ""
        except RuntimeError as error:
            raise NoKernels(str(error)) from error


@contextmanager
def imported_package(directory: Path, target: str | None = None) -> Iterator[Package]:
    """Import the package in `directory` from its source, under a name that no other import has.

    With a `target` it is as if it had been generated for that one alone: a device takes it, or none.
    The modules can be used inside the context, and are forgotten after it. Raises FileNotFoundError where there is no
    package, and whatever importing it raises.
    """
    directory = directory.resolve()
    if not (directory / "__init__.py").is_file():
        raise FileNotFoundError(f"no package in `{directory}`: it has no `__init__.py`")
    name = f"_v4gen_validated_{next(_serial)}"
    finder = _PrivateFinder(name, directory)
    for path in directory.glob("*.py"):
        linecache.cache.pop(str(path), None)
    sys.meta_path.insert(0, finder)
    try:
        if target is not None:
            _leave_only(target, importlib.import_module(f"{name}._runtime").TARGETS)
        modules = [".tilelang_indexer_fwd", ".tilelang_indexer_bwd", ".tilelang_indexer", ""]
        modules += [".reference"] * (directory / "reference.py").is_file()
        yield Package(*(importlib.import_module(f"{name}{module}") for module in modules))
    finally:
        sys.meta_path.remove(finder)
        for loaded in [key for key in sys.modules if key == name or key.startswith(f"{name}.")]:
            del sys.modules[loaded]


def _leave_only(target: str, targets: dict[str, Any]) -> None:
    for other in [name for name in targets if name != target]:
        del targets[other]
