"""What every test folder shares: the `gpu` marker."""

import pytest


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
