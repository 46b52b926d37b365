"""What is installed of all that v4gen can use, and how to get the rest. Imports none of it."""

import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

from v4gen.run.toolchain import GCC_HINT, NVCC_HINT, find_gcc, find_nvcc

BASE = "generate and check"
RUN = "build, validate and bench"
CPU = "kernels on the CPU"
CUDA = "compiling for NVIDIA GPUs"
GPU = "running on a GPU"

OLDEST_PYTHON = (3, 11)

# Each requirement with the extra that it comes with; the versions are those of v4gen's own metadata.
_EXTRAS = {"": BASE, "run": RUN}
_REQUIREMENT = re.compile(
    r"(?P<name>[\w.-]+)\s*\(?(?P<bounds>[^;)]*)\)?\s*(?:;\s*extra\s*==\s*['\"](?P<extra>\w+)['\"])?"
)
_BOUND = re.compile(r"(==|>=|<)\s*([\d.]+)")

_HOLDS: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    "==": lambda found, bound: found == bound,
    ">=": lambda found, bound: found >= bound,
    "<": lambda found, bound: found < bound,
}


@dataclass(frozen=True)
class Finding:
    """One thing that v4gen can use. `version` is None where it is missing; `hint` says what to do about a problem."""

    name: str
    needed_for: str
    version: str | None
    ok: bool
    hint: str | None = None

    def as_data(self) -> dict[str, Any]:
        """JSON-ready data, keys in a fixed order."""
        return asdict(self)


def examine() -> tuple[Finding, ...]:
    """Everything that v4gen can use, the base first."""
    return (_python(), _v4gen(), *_packages(), _gcc(), _nvcc(), _gpu())


def base_is_whole(findings: tuple[Finding, ...]) -> bool:
    """Whether all is there that `generate` and `check` need."""
    return all(finding.ok for finding in findings if finding.needed_for == BASE)


def _python() -> Finding:
    ok = sys.version_info >= OLDEST_PYTHON
    oldest = ".".join(map(str, OLDEST_PYTHON))
    return Finding("python", BASE, platform.python_version(), ok, None if ok else f"install Python {oldest} or newer")


def _v4gen() -> Finding:
    found = _version("v4gen")
    return Finding("v4gen", BASE, found, found is not None, None if found else "pip install v4gen")


def _packages() -> Iterator[Finding]:
    """The packages that the base and the `run` extra require, held against the versions that they require."""
    try:
        lines = requires("v4gen") or []
    except PackageNotFoundError:
        return
    for line in lines:
        match = _REQUIREMENT.match(line)
        if match is None or (match["extra"] or "") not in _EXTRAS:
            continue
        found, bounds = _version(match["name"]), match["bounds"].strip()
        ok = found is not None and _satisfies(found, bounds)
        extra = f"[{match['extra']}]" if match["extra"] else ""
        hint = None if ok else f"pip install 'v4gen{extra}' brings {match['name']}{bounds}"
        yield Finding(match["name"], _EXTRAS[match["extra"] or ""], found, ok, hint)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _satisfies(found: str, bounds: str) -> bool:
    """Whether the release numbers of `found` keep to `bounds`; suffixes such as `+cpu` do not count."""
    numbers = _numbers(re.match(r"[\d.]*", found)[0])  # type: ignore[index]  # matches anything
    return all(_HOLDS[how](numbers, _numbers(bound)) for how, bound in _BOUND.findall(bounds))


def _numbers(release: str) -> tuple[int, ...]:
    numbers = [int(number) for number in release.strip(".").split(".") if number]
    while numbers and numbers[-1] == 0:  # 2.6.0 is 2.6
        numbers.pop()
    return tuple(numbers)


def _gcc() -> Finding:
    found = find_gcc()
    said = _said([str(found), "-dumpfullversion"]) if found else None
    return Finding("gcc", CPU, said, said is not None, None if said else GCC_HINT)


def _nvcc() -> Finding:
    found = find_nvcc()
    said = _said([str(found), "--version"]) if found else None
    match = re.search(r"release ([\d.]+)", said) if said else None
    return Finding("nvcc", CUDA, match[1] if match else said, said is not None, None if said else NVCC_HINT)


def _gpu() -> Finding:
    tool = shutil.which("nvidia-smi")
    said = _said([tool, "--query-gpu=name,driver_version", "--format=csv,noheader"]) if tool else None
    names = said.replace("\n", "; ") if said else None
    hint = None if names else "run on a machine with an NVIDIA GPU and its driver; nothing else needs one"
    return Finding("GPU", GPU, names, names is not None, hint)


def _said(command: list[str]) -> str | None:
    """What a tool answers; None where it does not run, or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, cwd=Path.home().anchor)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
