"""Runs a package's kernels on small shapes under compute-sanitizer: `python docs/sanitizer.py PACKAGE RECORD`.

Needs an NVIDIA GPU. The record tells how many errors each tool saw; the exit status is 1 unless there were none.
"""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from v4gen.run.package import Package, imported_package
from v4gen.run.record import make_record, write_record

TOOLS = ("memcheck", "racecheck", "synccheck")
QUERIES = (1, 7, 130, 1025)
KEYS = (0, 1, 33)
SUMMARY = re.compile(r"(?:ERROR SUMMARY|RACECHECK SUMMARY): (\d+) (?:errors?|hazards? displayed)")
SECONDS = 180


def exercise(package: Package) -> None:
    """Forward and backward at every shape, sums by atomics and reproducible; void columns and duplicates among them."""
    import torch

    fwd, heads, dim = package.fwd, package.fwd.HEADS, package.fwd.DIM
    torch.manual_seed(0)
    for queries in QUERIES:
        for keys in KEYS:
            shapes = {"q": (queries, 2, heads, dim), "k": (keys, 2, dim), "weights": (queries, 2, heads)}
            tensors = {name: torch.randn(shape, device="cuda") for name, shape in shapes.items()}
            q, k = (tensors[name].to(fwd.DTYPE).requires_grad_() for name in ("q", "k"))
            weights = tensors["weights"].requires_grad_()
            scores, indices = package.indexer.lightning_indexer(q, k, weights)
            replayed = torch.cat([indices, indices[..., :1], torch.full_like(indices[..., :1], -1)], dim=-1)
            given, _ = package.indexer.lightning_indexer(q, k, weights, topk_indices=replayed)
            for result in (scores, given):
                for deterministic in (False, True):
                    torch.use_deterministic_algorithms(deterministic)
                    grad = torch.where(result == -torch.inf, torch.nan, torch.randn_like(result))
                    torch.autograd.grad(result, (q, k, weights), grad, retain_graph=True)
            torch.use_deterministic_algorithms(False)
    torch.cuda.synchronize()


def sanitize(folder: Path) -> dict[str, Any]:
    """The errors that each tool saw, all tools at once; None where one did not get to its summary in time."""
    child = [sys.executable, "-P", str(Path(__file__).resolve()), "--exercise", str(folder.resolve())]
    running = {
        tool: subprocess.Popen(
            ["compute-sanitizer", "--tool", tool, "--error-exitcode", "3", *child],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for tool in TOOLS
    }
    errors: dict[str, int | None] = {}
    for tool, process in running.items():
        try:
            said, _ = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            said, _ = process.communicate()
        found = SUMMARY.search(said)
        errors[tool] = int(found[1]) if found and process.returncode in (0, 3) else None
        if errors[tool] != 0:
            sys.stderr.write(f"{tool}: {said[-3000:]}\n")
    return {"queries": list(QUERIES), "keys": list(KEYS), "errors": errors}


def main() -> None:
    if sys.argv[1] == "--exercise":
        with imported_package(Path(sys.argv[2])) as package:
            exercise(package)
        return
    folder, record = map(Path, sys.argv[1:])
    found = sanitize(folder)
    command = ["python", "docs/sanitizer.py", folder.as_posix(), record.as_posix()]
    write_record(record, make_record("sanitizer", found, "cuda", folder, command))
    sys.exit(0 if set(found["errors"].values()) == {0} else 1)


if __name__ == "__main__":
    main()
