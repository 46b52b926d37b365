"""A process that validates packages one after another, each in a fork of its own, until its input ends.

A request is a line of JSON: `package` and `spec` (paths), `seconds` allowed, and `original`, the path of the unchanged
package whose rows to compare with, or null. The answer is a line of JSON as well. A mutant that crashes or hangs ends
its own fork only, and torch and tilelang are imported once, for all of them.
"""

import json
import os
import sys
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import tilelang  # noqa: F401  # imported once, for all forks
import torch
import torch._dynamo  # the first call of an operator imports it
from numpy.typing import NDArray
from torch import Tensor

from tests.mutation.fuzz import random_cases
from v4gen.read.reader import read_spec
from v4gen.read.spec import Spec
from v4gen.run.case import Case
from v4gen.run.cases import case_matrix
from v4gen.run.checks import measure
from v4gen.run.package import Package, imported_package
from v4gen.run.poison import poisoned_memory
from v4gen.run.subject import Subject
from v4gen.run.validate import validate_packages

Result = TypeVar("Result")


def verdict(request: dict[str, Any]) -> dict[str, Any]:
    """What a validation finds first, or that all passes."""
    package, spec = Path(request["package"]), read_spec(Path(request["spec"]))
    validations = validate_packages([(spec, package)], time_limit=request["seconds"], stop_at_failure=True, fork=True)
    (failed,) = next(validations).failures or (None,)
    if failed is None:
        witness = _in_a_fork(failing_case, package, spec, request["fuzz"], seconds=20 * request["seconds"])
        return {"passed": True, "witness": witness}
    rows = None
    if request["original"]:
        original = Path(request["original"])
        if original not in RIGHT_ROWS:
            RIGHT_ROWS[original] = _in_a_fork(rows_of, original, spec, seconds=request["seconds"])
        rows = _in_a_fork(changed_rows, package, original, spec, seconds=request["seconds"])
    first = failed.failures[0] if failed.failures else None
    seen = f"{first.name}: {first.where}" if first else failed.error
    return {"passed": False, "case": failed.name, "seen": seen, "rows": rows}


RIGHT_ROWS: dict[Path, list[NDArray[np.float64]]] = {}
"""What `rows_of` says of unchanged packages."""


def _in_a_fork(function: Callable[..., Result], *arguments: object, seconds: float) -> Result:
    with get_context("fork").Pool(1) as fork:
        return fork.apply_async(function, arguments).get(seconds)


def failing_case(folder: Path, spec: Spec, count: int) -> str:
    """The first of so many random cases that the package fails, and how; empty if it passes all."""
    with imported_package(folder) as package:
        for case in random_cases(spec, "0", count):
            try:
                failures = [found for found in measure(Subject.of(package, spec, case, "cpu")) if not found.passed]
            except Exception as error:  # the package's own
                return f"{case.description}: {error}"
            if failures:
                return f"{case.description}: {failures[0].name}: {failures[0].where}"
    return ""


def changed_rows(mutant: Path, original: Path, spec: Spec) -> tuple[int, int]:
    """How many rows differ from the original's over the whole matrix, and how many there are."""
    changed = total = 0
    for ours, theirs in zip(rows_of(mutant, spec), RIGHT_ROWS[original], strict=True):
        differs = (ours != theirs) & ~(np.isnan(ours) & np.isnan(theirs))
        changed += int(differs.any(-1).sum())
        total += len(theirs)
    return changed, total


def rows_of(folder: Path, spec: Spec) -> list[NDArray[np.float64]]:
    """The rows of each case of the matrix: of every query of every sample its scores, selection, dq and dw."""
    with imported_package(folder) as package:
        return [_rows(package, spec, case).numpy() for case in case_matrix(spec)]


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
