"""Kernel modules of an installed distribution, loaded without it: its packages are not initialised.

A training framework imports half of its world when it is imported; the kernels that it holds need little of that.
"""

import importlib
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from v4gen.run.contest import Unfit


def borrowed(folder: str, names: tuple[str, ...], stand_ins: Mapping[str, Mapping[str, Any]]) -> tuple[ModuleType, ...]:
    """The modules `names` of the package `folder`, its parents empty but for their paths.

    `stand_ins` are modules, with their members, that take the place of what these import besides. Raises Unfit where
    the topmost package is not installed.
    """
    if folder not in sys.modules:
        top, *parts = folder.split(".")
        found = find_spec(top)
        if found is None or not found.submodule_search_locations:
            raise Unfit(f"{top} is not installed")
        path = Path(next(iter(found.submodule_search_locations)))
        for depth in range(len(parts) + 1):
            parent = ModuleType(".".join([top, *parts[:depth]]))
            parent.__path__ = [str(path.joinpath(*parts[:depth]))]
            sys.modules[parent.__name__] = parent
        for name, members in stand_ins.items():
            sys.modules[name] = ModuleType(name)
            vars(sys.modules[name]).update(members)
    return tuple(importlib.import_module(f"{folder}.{name}") for name in names)
