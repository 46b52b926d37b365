"""Compiles the library's kernels for every family of GPUs, without one: `python docs/families.py` renews the record.

What the record holds already, from the same compilers, is not compiled again. `docs/reference.py` makes its table.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

from v4gen.read.reader import read_specs
from v4gen.run.families import compile_distinct, list_kernels, make_families_record, recorded_results, results_of
from v4gen.run.record import write_table_record
from v4gen.run.toolchain import find_nvcc

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "docs" / "records" / "library.kernels.json"


def main() -> None:
    nvcc = find_nvcc()
    known = recorded_results(json.loads(RECORD.read_text(encoding="utf-8")), nvcc) if RECORD.exists() else {}
    specs = read_specs(sorted((ROOT / "specs").glob("*.yaml")))
    with tempfile.TemporaryDirectory(prefix="v4gen-") as folder:
        kernels = tuple(list_kernels(specs, Path(folder)))
        reports = compile_distinct(
            [kernel for kernel in kernels if kernel.identity not in known], nvcc, os.cpu_count() or 1
        )
    results = known | results_of(reports)
    write_table_record(RECORD, make_families_record(kernels, results, nvcc, ["python", "docs/families.py"]))
    failed = [f"{report.kernel} for {report.target}: {report.problem}" for report in reports.values() if report.problem]
    sys.exit("\n".join(failed) or None)


if __name__ == "__main__":
    main()
