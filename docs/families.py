"""Compiles the library's kernels for every family of GPUs, without one: `python docs/families.py` renews the record."""

import os
import sys
import tempfile
from pathlib import Path

from v4gen.read.reader import read_specs
from v4gen.run.families import compile_distinct, list_kernels, make_families_record
from v4gen.run.record import write_record
from v4gen.run.toolchain import find_nvcc

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "docs" / "records" / "library.kernels.json"


def main() -> None:
    nvcc = find_nvcc()
    specs = read_specs(sorted((ROOT / "specs").glob("*.yaml")))
    with tempfile.TemporaryDirectory(prefix="v4gen-") as folder:
        kernels = tuple(list_kernels(specs, Path(folder)))
        reports = compile_distinct(kernels, nvcc, os.cpu_count() or 1)
    write_record(RECORD, make_families_record(kernels, reports, nvcc, ["python", "docs/families.py"]))
    failed = [f"{report.kernel} for {report.target}: {report.problem}" for report in reports.values() if report.problem]
    sys.exit("\n".join(failed) or None)


if __name__ == "__main__":
    main()
