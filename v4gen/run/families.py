"""The kernels of specs on every family of GPUs, named by the specs or not: each distinct one compiled once.

No GPU is needed. Two kernels are one where TileLang starts from the same function with the same settings.
"""

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from v4gen.emit.package import emit_packages
from v4gen.emit.write import write_package
from v4gen.plan.plan import make_plan
from v4gen.plan.target import TARGETS
from v4gen.read.spec import Spec
from v4gen.run.compile import KernelReport, compile_kernel
from v4gen.run.lower import identity, kernels_for
from v4gen.run.package import imported_package
from v4gen.run.record import RECORD_VERSION, toolchain

CUDA = tuple(target.name for target in TARGETS.values() if target.is_cuda)
FAMILIES = tuple(target.name for target in TARGETS.values() if not target.is_cpu)


@dataclass(frozen=True)
class Kernel:
    """One kernel of a spec for a target, from the package in `folder`; `identity` is equal where kernels are."""

    spec: str
    target: str
    kernel: str
    identity: str
    folder: Path

    @property
    def name(self) -> str:
        return f"{self.spec} {self.kernel} for {self.target}"


def list_kernels(specs: Sequence[Spec], folder: Path) -> Iterator[Kernel]:
    """Every kernel of every spec on every family, from packages that are written below `folder`.

    The CUDA targets that a spec does not name are added to those that it does. What is not for CUDA stands in a package
    of its own, since its plan would change the others'.
    """
    others = [(name,) for name in FAMILIES if name not in CUDA]
    for number, added in enumerate((CUDA, *others)):
        named = [tuple(dict.fromkeys((*spec.targets, *CUDA))) if added == CUDA else added for spec in specs]
        plans = [
            make_plan(spec.model_copy(update={"targets": names})) for spec, names in zip(specs, named, strict=True)
        ]
        for package in emit_packages(plans):
            place = folder / str(number) / package.name
            write_package(package, place)
            with imported_package(place) as modules:
                for target in (TARGETS[name] for name in added):
                    for kernel in kernels_for(target, reproducible=False):
                        found = identity(modules, kernel, target)
                        yield Kernel(package.name, target.name, kernel, found, place)


def compile_distinct(kernels: Sequence[Kernel], nvcc: Path | None, jobs: int) -> dict[str, KernelReport]:
    """The report of each distinct kernel by its identity, `jobs` at a time in processes of their own.

    A kernel for CUDA is compiled for every generation of GPUs that takes it; what nvcc does not compile is lowered.
    """
    distinct = {kernel.identity: kernel for kernel in reversed(kernels)}  # the first of those that are equal
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as executor:
        pending = {found: executor.submit(_compile, kernel, nvcc) for found, kernel in sorted(distinct.items())}
        return {found: future.result() for found, future in pending.items()}


def _compile(kernel: Kernel, nvcc: Path | None) -> KernelReport:
    return compile_kernel(kernel.folder, kernel.kernel, kernel.target, nvcc, to_run=False)


def results_of(reports: Mapping[str, KernelReport]) -> dict[str, dict[str, Any]]:
    """JSON-ready data of each report, by identity: all that is the same whenever the same compilers make the kernel."""
    return {found: {"identity": found} | _without_time(report) for found, report in reports.items()}


def make_families_record(
    kernels: Sequence[Kernel], results: Mapping[str, dict[str, Any]], nvcc: Path | None, command: Sequence[str]
) -> dict[str, Any]:
    """JSON-ready data: the compilers, what results there are by identity, and every spec's kernels."""
    named = [
        {"spec": kernel.spec, "target": kernel.target, "kernel": kernel.kernel, "identity": kernel.identity}
        for kernel in kernels
    ]
    distinct = sorted({kernel.identity for kernel in kernels})
    return {
        "record": RECORD_VERSION,
        "command": list(command),
        "compilers": compilers(nvcc),
        "families": {"kernels": named, "results": [results[found] for found in distinct if found in results]},
    }


def recorded_results(record: Mapping[str, Any], nvcc: Path | None) -> dict[str, dict[str, Any]]:
    """The results in a record by identity, if the compilers that are here made them; none otherwise."""
    if record.get("compilers") != compilers(nvcc):
        return {}
    return {result["identity"]: result for result in record["families"]["results"]}


def compilers(nvcc: Path | None) -> dict[str, str]:
    """The versions of what makes kernels here; nvcc's is empty where there is none."""
    said = subprocess.run([str(nvcc), "--version"], capture_output=True, text=True).stdout if nvcc else ""
    release = re.search(r"V(\d+(?:\.\d+)+)", said)
    return {"tilelang": toolchain().get("tilelang", ""), "nvcc": release[1] if release else ""}


def _without_time(report: KernelReport) -> dict[str, Any]:
    data = report.as_data()
    del data["seconds"]
    return data
