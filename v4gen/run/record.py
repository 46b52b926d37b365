"""The evidence file: what was run, on what, and every number that came out."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from v4gen.digest import digest_bytes
from v4gen.emit.write import Change, write

RECORD_VERSION = 1
TOOLCHAIN = ("torch", "tilelang", "apache-tvm-ffi")


def make_record(kind: str, data: Any, device: str, package_dir: Path, command: Sequence[str]) -> dict[str, Any]:
    """Everything a reader needs to judge or repeat a run, as JSON-ready data with keys in a fixed order.

    `data` is what came out, stored under `kind` (validation, timings); `command` is the command line, one argument an
    element.
    """
    return {
        "record": RECORD_VERSION,
        "command": list(command),
        "machine": machine(device),
        "toolchain": {"python": platform.python_version()} | dict.fromkeys(TOOLCHAIN, "not installed") | toolchain(),
        "files": package_digests(package_dir),
        kind: data,
    }


def write_record(path: Path, record: dict[str, Any]) -> None:
    """Write the record as JSON, whole or not at all: a reader never sees half a file."""
    write([Change(path, json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False) + "\n")])


def write_table_record(path: Path, record: dict[str, Any]) -> None:
    """`write_record`, with each row of a table, an object in a list, on a line of its own."""
    write([Change(path, _tabular(record, "") + "\n")])


def _tabular(value: Any, margin: str) -> str:
    inner = f"{margin}  "
    match value:
        case dict() if value:
            parts = [f"{json.dumps(key)}: {_tabular(item, inner)}" for key, item in value.items()]
            return "{\n" + ",\n".join(inner + part for part in parts) + f"\n{margin}}}"
        case [dict(), *_]:
            return "[\n" + ",\n".join(inner + _line(row) for row in value) + f"\n{margin}]"
    return _line(value)


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def package_digests(package_dir: Path) -> dict[str, str]:
    """sha256 of each Python file of the package and of its `py.typed`, line endings normalised, by relative path."""
    files = sorted(path for path in package_dir.rglob("*") if path.suffix == ".py" or path.name == "py.typed")
    return {path.relative_to(package_dir).as_posix(): digest_bytes(path.read_bytes()) for path in files}


def machine(device: str) -> dict[str, Any]:
    """What a run was on: device kind and name, CPU model, system; of a GPU also what NVML tells, or why it does not."""
    system = f"{platform.system()} {platform.machine()}"
    common = {"device": device, "name": device_name(device), "cpu": _cpu_model(), "system": system}
    if not device.startswith("cuda"):
        return common
    import torch

    from v4gen.run.power import Meter, NoMeter

    try:
        told = Meter(device).facts()
    except NoMeter as error:
        told = {"nvml": str(error)}
    return common | {"cuda": torch.version.cuda} | told


def device_name(device: str) -> str:
    """The model of the GPU, or of the CPU."""
    if not device.startswith("cuda"):
        return _cpu_model()
    import torch

    return torch.cuda.get_device_name(device)


def toolchain() -> dict[str, str]:
    """The versions of what compiles and runs kernels here, without loading it; what is not installed is left out."""
    return {name: found for name in TOOLCHAIN if (found := _version(name))}


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
