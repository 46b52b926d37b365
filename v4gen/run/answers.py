"""The package's own calls on a problem: what is timed, and what rivals and other schedules are held against."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from v4gen.plan.cost import SCORE_BYTES
from v4gen.run.contest import Problem, Tasks, Unfit
from v4gen.run.package import Package

if TYPE_CHECKING:
    from torch import Tensor

# A matrix of all scores is made where it leaves room for the rivals' copies; the package's own forward makes none.
MATRIX_LIMIT = 16 << 30


@dataclass(frozen=True)
class Answers:
    """The package's calls on a problem, and what they return: the rivals' inputs, and what they are held against.

    All that the benchmark knows of a package's inside is here.
    """

    package: Package
    problem: Problem

    def prepare(self) -> None:
        """Make what others are held against: scores, selection and gradients. Raises Unfit as `scores` does."""
        _ = self._window, self.matrix, self.best, self.gradients

    def of(self, package: Package) -> "Answers":
        """Another package's calls, on the same memory and selecting from the same scores."""
        other = Answers(package, self.problem)
        for name in ("_window", "matrix", "best"):
            vars(other)[name] = getattr(self, name)  # where `cached_property` keeps them
        return other

    def scores(self) -> "Tensor":
        """The matrix of all scores: [B, S, N], −inf out of sight. Raises Unfit where it is too large to share."""
        problem, fwd = self.problem, self.package.fwd
        self._check_size()
        matrix = fwd.batched_indexer_fwd(problem.q, problem.k, problem.weights, *self._ranges())
        result: Tensor = matrix.unsqueeze(0) if problem.packed else matrix
        return result

    def kernel(self) -> None:
        """The scores kernel alone, into memory that is there already; nothing is written out of sight."""
        shape, write_scores = self.problem.shape, self.package.fwd.write_scores
        if self.problem.spec.mask == "causal":
            write_scores(*self._operands, None, self._window, 0, 0, shape.offset, shape.ratio)
        else:
            write_scores(*self._operands, tuple(limit.unsqueeze(0) for limit in self._ranges()), self._window)

    def select(self) -> Any:
        problem, select = self.problem, self.package.indexer.tilelang_indexer_topk.select
        if problem.spec.mask == "causal":
            return select(self.matrix, None, problem.width, problem.shape.offset, problem.shape.ratio)
        return select(self.matrix, tuple(limit.unsqueeze(0) for limit in self._ranges()), problem.width)

    def forward(self) -> Any:
        return self._selected(self.problem.q, self.problem.k, self.problem.weights)

    def _selected(self, *inputs: "Tensor") -> Any:
        """Scores and indices [B, S, K] for q, k and weights."""
        problem, shape, forward = self.problem, self.problem.shape, self.package.indexer._ops.checked_select
        if problem.spec.mask == "causal":
            return forward(*inputs, shape.ratio, shape.topk, None, shape.offset)
        starts, ends = (limit.unsqueeze(0) for limit in self._ranges())
        found = forward(*inputs, starts, ends, shape.keys, shape.topk, None)
        return [tensor.unsqueeze(0) for tensor in found] if problem.packed else found

    def backward(self) -> Any:
        return self.gradients_of(self.best[1], self.problem.grad)

    def gradients_of(self, indices: "Tensor", grad: "Tensor") -> Any:
        """dq, dw and dk for the gradients [B, S, K] of the scores at indices [B, S, K]."""
        problem = self.problem
        if problem.packed:
            indices, grad = indices.squeeze(0), grad.squeeze(0)
        return self.package.bwd.batched_indexer_bwd(problem.q, problem.weights, problem.k, indices, grad)

    def forward_and_backward(self) -> tuple["Tensor", ...]:
        """The selection and its gradients through autograd: what a training step asks for."""
        import torch

        q, k, weights = self.problem.leaves
        scores, indices = self._selected(q, k, weights)
        gradients = torch.autograd.grad(scores, (q, weights, k), self._row_grad)
        return (scores.detach(), indices, *gradients)

    @cached_property
    def _row_grad(self) -> "Tensor":
        return self.problem.row_grad(self.problem.width)

    def reproducible_backward(self) -> Any:
        """The backward, with sums that are the same on every run."""
        import torch

        before = torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(True)
        try:
            return self.backward()
        finally:
            torch.use_deterministic_algorithms(before)

    def _check_size(self) -> None:
        shape = self.problem.shape
        size = shape.batch * shape.length * shape.keys * SCORE_BYTES
        if size > MATRIX_LIMIT:
            raise Unfit(f"the matrix of all scores would take {size / 2**30:.0f} GiB")

    @cached_property
    def _operands(self) -> tuple["Tensor", ...]:
        problem = self.problem
        inputs: tuple[Tensor, ...] = self.package.fwd.operands(problem.q, problem.k, problem.weights)
        return inputs

    @cached_property
    def _window(self) -> "Tensor":
        import torch

        self._check_size()
        shape = self.problem.shape
        return torch.empty(shape.batch, shape.length, -(-shape.keys // 4) * 4, device=self.problem.device)

    def _ranges(self) -> Any:
        """First key that each query sees, and one past the last: int32 [S]. Every mask is run as a causal one."""
        shape = self.problem.shape
        numbers = (shape.length, shape.keys, shape.ratio, self.problem.device, shape.offset)
        return self.package.fwd._make_causal_cu_seqlens(*numbers)

    @cached_property
    def matrix(self) -> "Tensor":
        return self.scores()

    @cached_property
    def best(self) -> tuple["Tensor", "Tensor"]:
        """Scores and indices [B, S, K]."""
        scores, indices = self.forward()
        return scores, indices

    @cached_property
    def gradients(self) -> tuple["Tensor", "Tensor", "Tensor"]:
        """dq, dw and dk."""
        dq, dw, dk = self.backward()
        return dq, dw, dk

    def tasks(self) -> Tasks:
        """Each as a user would call it, outputs allocated and masked; and the scores kernel as the forward runs it."""
        return {
            "kernel": self.kernel,
            "scores": self.scores,
            "select": self.select,
            "forward": self.forward,
            "backward": self.backward,
            "forward+backward": self.forward_and_backward,
            "reproducible backward": self.reproducible_backward,
        }
