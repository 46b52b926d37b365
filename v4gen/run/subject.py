"""One package asked one case: its entry points closed over the case's inputs, beside the oracle's view of them.

Whatever goes in and out here is batch first: packed tokens are one sample. Indices are as the package counts them,
unless they are called keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from v4gen.run import oracle
from v4gen.run.case import Case
from v4gen.run.mask import LARGEST, Mask
from v4gen.run.oracle import Gradients, Problem
from v4gen.run.package import Package
from v4gen.run.tolerance import Arithmetic, gradient_bounds, score_bounds
from v4gen.run.values import Inputs, batch_first, draw_mask, in_layout, make_gradient, make_inputs, make_problem

if TYPE_CHECKING:
    from v4gen.read.spec import Spec


@dataclass(frozen=True)
class Subject:
    """A package, the inputs of one case in its layout, and what the oracle says about them."""

    package: Package
    spec: Spec
    case: Case
    inputs: Inputs
    mask: Mask
    problem: Problem
    arithmetic: Arithmetic
    device: str

    @classmethod
    def of(cls, package: Package, spec: Spec, case: Case, device: str) -> Subject:
        """Draw the case's inputs on `device`."""
        inputs, mask = make_inputs(case, spec, device), draw_mask(case, spec)
        arithmetic = Arithmetic.of(device, inputs.q.dtype)
        return cls(package, spec, case, inputs, mask, make_problem(case, spec, inputs), arithmetic, device)

    def indexer(self) -> Any:
        """The package's object at the case's offset."""
        return self.package.indexer.LightningIndexer(query_offset=self.case.query_offset)

    def matrix(self) -> Tensor:
        """The package's score matrix, float32 [B,S,N]."""
        inputs = self.inputs
        if self.case.sets_constants(self.spec):
            result: Tensor = self.package.fwd.batched_indexer_fwd(
                inputs.q, inputs.k, inputs.weights, *self.key_ranges()
            )
        else:
            result = self.indexer().scores(inputs.q, inputs.k, inputs.weights, **inputs.mask)
        return self.unpacked(result.detach())

    def forward(self, q: Tensor, k: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Selected scores and indices [B,S,C] from the package's function, at the case's given indices if any."""
        case, given = self.case, self.inputs.given
        if case.sets_constants(self.spec):
            pair = self.package.indexer.v4_lighting_indexer(q, k, weights, case.ratio, case.topk, given)
        else:
            pair = self.package.indexer.lightning_indexer(
                q, k, weights, topk_indices=given, query_offset=case.query_offset, **self.inputs.mask
            )
        scores, indices = pair
        return self.unpacked(scores), self.unpacked(indices)

    def backward(self, indices: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """dq, dw and dk in the layout from the backward that takes indices and gradients, and no mask."""
        inputs, keys = self.inputs, self.packed(self.unmasked_indices(indices))
        backward = self.package.bwd.batched_indexer_bwd
        dq, dw, dk = backward(inputs.q, inputs.weights, inputs.k, keys, self.packed(grad))
        return dq, dw, dk

    def leaves(self) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and weights in the same memory, asking for gradients."""
        q, k, weights = (t.detach().requires_grad_() for t in (self.inputs.q, self.inputs.k, self.inputs.weights))
        return q, k, weights

    def key_ranges(self) -> tuple[Tensor, Tensor]:
        """First and last-plus-one visible key of each query, int32 [S] or [B,S], for the low-level forward."""
        starts, ends = (bound.to(self.device, torch.int32) for bound in (self.mask.starts, self.mask.ends))
        return (starts[0], ends[0]) if len(starts) == 1 else (starts, ends)

    def given(self) -> Tensor | None:
        """The given indices [B,S,C], on the CPU."""
        given = self.inputs.given
        return None if given is None else self.unpacked(given).cpu()

    def gradient(self, indices: Tensor) -> Tensor:
        """The case's upstream gradient [B,S,C] for scores at `indices`, on the device, its memory order kept."""
        return make_gradient(self.case, self.keys(indices), self.visible, self.device)

    def keys(self, indices: Tensor) -> Tensor:
        """Positions among all keys that `indices` name, int64, on the CPU; void ones stay void."""
        return self.mask.to_keys(indices.detach().cpu())

    def unmasked_indices(self, indices: Tensor) -> Tensor:
        """Keys int32 at `indices`, -1 over what the mask hides, for a backward that is given no mask."""
        keys = self.keys(indices)
        hidden = oracle.is_void(keys, self.visible) & (keys >= 0) & (keys < self.problem.keys)
        return keys.masked_fill(hidden, -1).clamp(max=LARGEST).to(self.device, torch.int32)

    def batch_first(self, tensor: Tensor) -> Tensor:
        """An input of the package's layout, or its gradient, batch first."""
        return batch_first(tensor, self.spec.layout)

    def in_layout(self, tensor: Tensor) -> Tensor:
        """The inverse of `batch_first`."""
        return in_layout(tensor, self.spec.layout)

    def unpacked(self, result: Tensor) -> Tensor:
        """A result of the package, [B,S,...] or [T,...], batch first."""
        return result[None] if self.spec.layout == "THD" else result

    def packed(self, result: Tensor) -> Tensor:
        """The inverse of `unpacked`."""
        return result[0] if self.spec.layout == "THD" else result

    @property
    def visible(self) -> Tensor:
        """The mask, bool [M,S,N]."""
        return self.problem.visible

    @cached_property
    def exact_problem(self) -> Problem:
        """The problem in int64 where its inputs are integers, else in float64."""
        return self.problem.as_integers() or self.problem

    @cached_property
    def exact_scores(self) -> Tensor:
        """The oracle's score matrix, float64 [B,S,N]."""
        return oracle.scores(self.exact_problem)

    def score_bounds(self) -> Tensor:
        """The tolerance of each element of the score matrix."""
        return score_bounds(self.problem, self.arithmetic)

    def exact_gradients(self, indices: Tensor, grad: Tensor) -> Gradients:
        """The oracle's gradients at `indices` [B,S,C], in float64."""
        grad = grad.cpu()
        problem = self.exact_problem if oracle.is_integral(grad.nan_to_num(0, 0, 0)) else self.problem
        exact = oracle.gradients(problem, self.keys(indices), grad)
        return Gradients(exact.dq.double(), exact.dk.double(), exact.dw.double())

    def gradient_bounds(self, indices: Tensor, grad: Tensor) -> Gradients:
        """The tolerance of each element of the gradients, before rounding to an output dtype."""
        return gradient_bounds(self.problem, self.keys(indices), grad.cpu(), self.arithmetic)
