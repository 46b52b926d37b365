"""What a package's custom operators tell torch's compiler ahead must be what comes: shapes, dtypes, what is written."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from v4gen.run.evidence import Measurement
from v4gen.run.measure import holds
from v4gen.run.subject import Subject

OWN = frozenset({"aten", "prim", "prims", "profiler"})
"""Namespaces of torch's own operators."""

Call = tuple[Any, tuple[Any, ...], dict[str, Any]]


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch does not type it
    """Remembers the calls of operators that are not torch's own."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # nor this
        self.calls: list[Call] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func.namespace not in OWN:
            self.calls.append((func, args, kwargs or {}))
        return func(*args, **(kwargs or {}))


def measure_operators(subject: Subject) -> Iterator[Measurement]:
    """torch's own `opcheck` of each call of a custom operator, for all gradients and for one at a time."""
    wanted = [(True,) * 3, *(tuple(asked == n for n in range(3)) for asked in range(3))]
    number = count(1)
    for needs in wanted:
        for function, args, kwargs in _calls(subject, needs):
            name = f"operator {function.name().rpartition('::')[2]}, call {next(number)}"
            try:
                torch.library.opcheck(function, args, kwargs, test_utils=("test_schema", "test_faketensor"))
            except Exception as error:  # opcheck's own, and whatever the package raises for tensors without data
                yield holds(name, False, str(error).strip().splitlines()[-1])
            else:
                yield holds(name, True, "")


def _calls(subject: Subject, needs: tuple[bool, ...]) -> list[Call]:
    """The calls of a forward and a backward in which these of q, k and weights ask for a gradient."""
    leaves = subject.leaves()
    for leaf, needed in zip(leaves, needs, strict=True):
        leaf.requires_grad_(needed)
    recorder = _Recorder()
    with recorder:
        scores, _ = subject.forward(*leaves)
        torch.autograd.backward(scores, torch.ones_like(scores))
    return recorder.calls
