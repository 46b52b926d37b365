"""Compiles the library's kernels for every family of GPUs, without one: `python docs/families.py` renews the record.

What the record holds already, from the same compilers, is not compiled again. `docs/targets.py` makes a table of it.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

from v4gen.read.reader import read_specs
from v4gen.run.families import (
    FAMILIES,
    compile_distinct,
    list_kernels,
    make_families_record,
    recorded_results,
    results_of,
)
from v4gen.run.record import write_table_record
from v4gen.run.toolchain import find_nvcc

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "docs" / "records" / "library.kernels.json"


def main() -> None:
    nvcc, command = find_nvcc(), ["python", "docs/families.py"]
    results = recorded_results(json.loads(RECORD.read_text(encoding="utf-8")), nvcc) if RECORD.exists() else {}
    specs = read_specs(sorted((ROOT / "specs").glob("*.yaml")))
    with tempfile.TemporaryDirectory() as folder:
        kernels = tuple(list_kernels(specs, Path(folder)))
        for target in FAMILIES:  # a run is long, and what it has compiled is not to be lost with it
            new = [kernel for kernel in kernels if kernel.target == target and kernel.identity not in results]
            results |= results_of(compile_distinct(new, nvcc, os.cpu_count() or 1))
            write_table_record(RECORD, make_families_record(kernels, results, nvcc, command))
    failed = [
        f"{result['kernel']} for {result['target']}: {result['problem']}"
        for result in results.values()
        if result["problem"]
    ]
    sys.exit("\n".join(failed) or None)


if __name__ == "__main__":
    main()
