"""One package asked one case: its entry points closed over the case's inputs, beside the oracle's view of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from v4gen.run import oracle
from v4gen.run.cases import Case
from v4gen.run.oracle import Gradients, Problem
from v4gen.run.package import Package
from v4gen.run.tolerance import Arithmetic, gradient_bounds, score_bounds
from v4gen.run.values import Inputs, batch_first, make_gradient, make_inputs, make_problem

if TYPE_CHECKING:
    from v4gen.read.spec import Spec


@dataclass(frozen=True)
class Subject:
    """A package, the inputs of one case in its layout, and what the oracle says about them."""

    package: Package
    spec: Spec
    case: Case
    inputs: Inputs
    problem: Problem
    arithmetic: Arithmetic
    device: str

    @classmethod
    def of(cls, package: Package, spec: Spec, case: Case, device: str) -> Subject:
        """Draw the case's inputs on `device`."""
        inputs = make_inputs(case, spec, device)
        arithmetic = Arithmetic.of(device, inputs.q.dtype)
        return cls(package, spec, case, inputs, make_problem(case, spec, inputs), arithmetic, device)

    def matrix(self) -> Tensor:
        """The package's score matrix, float32 [B,S,N]."""
        inputs, case = self.inputs, self.case
        if case.sets_constants(self.spec):
            starts, ends = self.key_ranges()
            result: Tensor = self.package.fwd.batched_indexer_fwd(inputs.q, inputs.k, inputs.weights, starts, ends)
        else:
            indexer = self.package.indexer.LightningIndexer(query_offset=case.query_offset)
            result = indexer.scores(inputs.q, inputs.k, inputs.weights)
        return result.detach()

    def forward(self, q: Tensor, k: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Selected scores and indices [B,S,C] from the package's function, at the case's given indices if any."""
        case, given = self.case, self.inputs.given
        if case.sets_constants(self.spec):
            pair = self.package.indexer.v4_lighting_indexer(q, k, weights, case.ratio, case.topk, given)
        else:
            pair = self.package.indexer.lightning_indexer(
                q, k, weights, topk_indices=given, query_offset=case.query_offset
            )
        scores, indices = pair
        return scores, indices

    def leaves(self) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and weights in the same memory, asking for gradients."""
        q, k, weights = (t.detach().requires_grad_() for t in (self.inputs.q, self.inputs.k, self.inputs.weights))
        return q, k, weights

    def key_ranges(self) -> tuple[Tensor, Tensor]:
        """First and last-plus-one visible key of each query, int32 [S], for the seed's low-level forward."""
        ends = self.visible.sum(-1, dtype=torch.int32).to(self.device)
        return torch.zeros_like(ends), ends

    def gradient(self, indices: Tensor) -> Tensor:
        """The case's upstream gradient for scores at `indices`, on the device, its memory order kept."""
        return make_gradient(self.case, indices.detach().cpu(), self.visible, self.device)

    def unmasked_indices(self, indices: Tensor) -> Tensor:
        """`indices` with -1 over what the mask hides, for a backward that is given no mask; the rest untouched."""
        indices = indices.detach().cpu()
        hidden = oracle.is_void(indices, self.visible) & (indices >= 0) & (indices < self.problem.keys)
        return indices.masked_fill(hidden, -1).to(self.device)

    def batch_first(self, tensor: Tensor) -> Tensor:
        """A tensor of the package's layout, batch first."""
        return batch_first(tensor, self.spec.layout)

    @cached_property
    def visible(self) -> Tensor:
        """The mask, bool [S,N]."""
        return self.problem.visible()

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
        grad, indices = grad.cpu(), indices.detach().cpu()
        problem = self.exact_problem if oracle.is_integral(grad.nan_to_num(0, 0, 0)) else self.problem
        exact = oracle.gradients(problem, indices, grad)
        return Gradients(exact.dq.double(), exact.dk.double(), exact.dw.double())

    def gradient_bounds(self, indices: Tensor, grad: Tensor) -> Gradients:
        """The tolerance of each element of the gradients, before rounding to an output dtype."""
        return gradient_bounds(self.problem, indices.detach().cpu(), grad.cpu(), self.arithmetic)
