"""What every test folder shares: the `gpu` marker, and a compiler that spares most of its time."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

HEADERS = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    """Have TileLang compile through `g++` in this folder, in the processes of xdist and of tests too."""
    if "CXX" not in os.environ and shutil.which("g++"):
        config.stash[HEADERS] = os.environ["PRECOMPILED_HEADERS"] = tempfile.mkdtemp(prefix="precompiled-")
        os.environ["CXX"] = str(Path(__file__).with_name("g++"))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove what it left."""
    if HEADERS in config.stash:
        shutil.rmtree(config.stash[HEADERS])
        del os.environ["CXX"], os.environ["PRECOMPILED_HEADERS"]


def _why_no_gpu() -> str | None:
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    return None if torch.version.cuda and torch.cuda.is_available() else "no CUDA GPU"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests marked `gpu` where they cannot run; torch is imported only if there are any."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and (reason := _why_no_gpu()):
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=reason))
