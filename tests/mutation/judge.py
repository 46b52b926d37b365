"""A process that validates packages one after another, each in a fork of its own, until its input ends.

A request is a line of JSON: `package` and `spec` (paths), `seconds` allowed, and `original`, the path of the unchanged
package whose rows to compare with, or null. The answer is a line of JSON as well. A mutant that crashes or hangs ends
its own fork only, and torch and tilelang are imported once.
"""

import json
import os
import select
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import tilelang  # noqa: F401  # imported once, for all forks
import torch
from torch import Tensor

from v4gen.read.reader import read_spec
from v4gen.read.spec import Spec
from v4gen.run import validate
from v4gen.run.case import Case
from v4gen.run.cases import case_matrix
from v4gen.run.evidence import CaseResult, Measurement
from v4gen.run.package import Package, imported_package
from v4gen.run.poison import poisoned_memory
from v4gen.run.subject import Subject


class _CaughtError(BaseException):
    """Ends a validation at its first failure: the rest of the matrix would only cost time."""

    def __init__(self, result: CaseResult) -> None:
        self.result = result


def verdict(request: dict[str, Any], answer: BinaryIO) -> None:
    """Write a line for each case begun, and a last one with what was found."""
    package, spec = Path(request["package"]), read_spec(Path(request["spec"]))
    tried = validate._tried

    def until_failure(name: str, description: str, trial: Callable[[], Iterable[Measurement]]) -> CaseResult:
        result = tried(name, description, trial)
        if not result.passed:
            raise _CaughtError(result)
        return result

    def begun(name: str, *_: int) -> None:
        _send(answer, {"case": name})

    validate._tried = until_failure
    try:
        found = validate.validate_package(package, spec, progress=begun)
        failed = found.failures[0] if found.failures else None  # a package that cannot be imported
    except _CaughtError as caught:
        failed = caught.result
    if failed is None:
        _send(answer, {"passed": True})
        return
    rows = changed_rows(package, Path(request["original"]), spec) if request["original"] else None
    first = failed.failures[0] if failed.failures else None
    seen = f"{first.name}: {first.where}" if first else failed.error
    _send(answer, {"passed": False, "case": failed.name, "seen": seen, "rows": rows})


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


def _send(to: BinaryIO, message: dict[str, Any]) -> None:
    to.write(json.dumps(message).encode() + b"\n")
    to.flush()


def judged(request: dict[str, Any]) -> dict[str, Any]:
    """The verdict of a fork; a fork that dies or runs out of time failed in the case that it had begun."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()  # so that its compilers end with it
        try:
            verdict(request, os.fdopen(writer, "wb"))
        finally:
            os._exit(0)
    os.close(writer)
    lines = [json.loads(line) for line in _lines(reader, request["seconds"])]
    os.killpg(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    last: dict[str, Any] = lines[-1] if lines else {"case": "import"}
    if "passed" in last:
        return last
    how = f"ended by signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "ended"
    return {"passed": False, "case": last["case"], "seen": how, "rows": None}


def _lines(reader: int, seconds: float) -> Iterator[bytes]:
    """What comes from a fork until it closes its end; each line may take `seconds`."""
    with os.fdopen(reader, "rb", buffering=0) as stream:
        rest = b""
        while select.select([stream], [], [], seconds)[0] and (read := stream.read(65536)):
            *whole, rest = (rest + read).split(b"\n")
            yield from whole


def main() -> None:
    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what packages and compilers print is no answer
    for line in sys.stdin:
        _send(answers, judged(json.loads(line)))


if __name__ == "__main__":
    main()
