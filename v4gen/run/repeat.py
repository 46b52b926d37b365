"""Run after run the same bits: a race between blocks, or memory read before it is written, shows on some runs only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from v4gen.run.case import Case, affordable, deep_keys, late
from v4gen.run.checks import deterministic_algorithms
from v4gen.run.evidence import Measurement
from v4gen.run.measure import same
from v4gen.run.subject import Subject

if TYPE_CHECKING:
    from v4gen.read.spec import Spec

RUNS = 20


def repeated_case(spec: Spec) -> Case:
    """More keys than top-k, so that every kernel has something to do."""
    return replace(affordable(late(spec, "repeated", deep_keys(spec), queries=5, batch=2), spec), seed=800)


def measure_repeats(subject: Subject) -> Iterator[Measurement]:
    """All results of RUNS runs against the first's; dk, a sum in any order, where torch asks for determinism."""
    runs = [_results(subject) for _ in range(RUNS)]
    with deterministic_algorithms(True):
        ordered = [{"dk": _results(subject)["dk"]} for _ in range(RUNS)]
    for results, names in ((runs, ("scores", "indices", "dq", "dw")), (ordered, ("dk",))):
        for name in names:
            first, *others = (result[name] for result in results)
            yield same(f"{name}, {RUNS} runs", torch.stack(others), first.expand(len(others), *first.shape))


def _results(subject: Subject) -> dict[str, Tensor]:
    leaves = subject.leaves()
    scores, indices = subject.forward(*leaves)
    dq, dk, dw = torch.autograd.grad(scores, leaves, subject.gradient(indices))
    return {"scores": scores.detach(), "indices": indices, "dq": dq, "dk": dk, "dw": dw}
