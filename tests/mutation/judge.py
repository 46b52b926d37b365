"""A process that validates packages one after another, each in a fork of its own, until its input ends.

A request is a line of JSON: `package` and `spec` (paths), `seconds` allowed, and `original`, the path of the unchanged
package whose rows to compare with, or null. The answer is a line of JSON as well. A mutant that crashes or hangs ends
its own fork only, and torch and tilelang are imported once, for all of them.
"""

import json
import os
import sys
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import tilelang  # noqa: F401  # imported once, for all forks
import torch
import torch._dynamo  # the first call of an operator imports it
from torch import Tensor

from v4gen.read.reader import read_spec
from v4gen.read.spec import Spec
from v4gen.run.case import Case
from v4gen.run.cases import case_matrix
from v4gen.run.package import Package, imported_package
from v4gen.run.poison import poisoned_memory
from v4gen.run.subject import Subject
from v4gen.run.validate import validate_packages


def verdict(request: dict[str, Any]) -> dict[str, Any]:
    """What a validation finds first, or that all passes."""
    package, spec = Path(request["package"]), read_spec(Path(request["spec"]))
    validations = validate_packages([(spec, package)], time_limit=request["seconds"], stop_at_failure=True, fork=True)
    (failed,) = next(validations).failures or (None,)
    if failed is None:
        return {"passed": True}
    rows = None
    if request["original"]:
        with get_context("fork").Pool(1) as fork:
            changed = fork.apply_async(changed_rows, (package, Path(request["original"]), spec))
            rows = changed.get(request["seconds"])
    first = failed.failures[0] if failed.failures else None
    seen = f"{first.name}: {first.where}" if first else failed.error
    return {"passed": False, "case": failed.name, "seen": seen, "rows": rows}


def changed_rows(mutant: Path, original: Path, spec: Spec) -> tuple[int, int]:
    """How many rows differ from the original's over the whole matrix, and how many there are.

    A row is one query of one sample: its scores, selection, dq and dw.
    """
    changed = total = 0
    with imported_package(mutant) as wrong, imported_package(original) as right:
        for case in case_matrix(spec):
            ours, theirs = _rows(wrong, spec, case), _rows(right, spec, case)
            differs = (ours != theirs) & ~(ours.isnan() & theirs.isnan())
            changed += int(differs.any(-1).sum())
            total += theirs.shape[0]
    return changed, total


def _rows(package: Package, spec: Spec, case: Case) -> Tensor:
    subject = Subject.of(package, spec, case, "cpu")
    inputs = subject.inputs
    with poisoned_memory(), torch.no_grad():
        matrix = subject.matrix()
        scores, indices = subject.forward(inputs.q, inputs.k, inputs.weights)
        given = subject.given()
        grad = subject.gradient(indices)
        dq, dw, _ = subject.backward(indices if given is None else given, grad)
    results = (matrix, scores, indices, subject.batch_first(dq), subject.batch_first(dw))
    return torch.cat([result.flatten(2).double() for result in results], dim=-1).flatten(0, 1)


def main() -> None:
    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what packages and compilers print is no answer
    for line in sys.stdin:
        answers.write(json.dumps(verdict(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
