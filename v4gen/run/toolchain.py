"""Where the compilers are: nvcc on the path, in CUDA_HOME, or from the `cuda` extra; gcc for the CPU."""

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

NVCC_HINT = "pip install 'v4gen[cuda]' brings it"
GCC_HINT = "install gcc and g++, such as with `apt-get install g++`"


def find_nvcc() -> Path | None:
    """The nvcc to use: that of CUDA_HOME or CUDA_PATH, else the one on the PATH, else the `cuda` extra's; or None."""
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if home := os.environ.get(variable):
            candidate = Path(home) / "bin" / "nvcc"
            if candidate.is_file():
                return candidate
    if found := shutil.which("nvcc"):
        return Path(found)
    return _packaged_nvcc()


def find_gcc() -> Path | None:
    """The C compiler that the CPU kernels are built with, or None."""
    return Path(found) if (found := shutil.which("gcc")) and shutil.which("g++") else None


def sees_gpu() -> bool:
    """Whether torch sees a CUDA device."""
    import torch

    return torch.cuda.is_available()


def _packaged_nvcc() -> Path | None:
    """nvcc as the package nvidia-cuda-nvcc installs it, below the namespace package `nvidia`."""
    spec = find_spec("nvidia")
    for location in (spec.submodule_search_locations or []) if spec else []:
        for candidate in sorted(Path(location).glob("*/bin/nvcc"), reverse=True):
            return candidate
    return None
