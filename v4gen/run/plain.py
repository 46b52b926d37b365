"""Plain torch as a rival: a chunk of queries at a time, so that it fits."""

from functools import cache
from typing import TYPE_CHECKING

from v4gen.run.answers import Answers
from v4gen.run.contest import Problem, Tasks, scaled_weights

if TYPE_CHECKING:
    from torch import Tensor

CHUNK = 512  # queries whose products are held at once


def torch_tasks(problem: Problem, answers: Answers) -> Tasks:
    """Products, relu, weighted sum and torch.topk; backward by autograd through the selected keys."""
    import torch

    shape = problem.shape
    q, k, weights = (problem.batch_first(t) for t in (problem.q, problem.k, scaled_weights(problem)))
    columns = torch.arange(shape.keys, device=q.device)
    width = min(shape.topk, shape.keys)

    def forward() -> tuple["Tensor", "Tensor"]:
        best = torch.empty(shape.batch, shape.length, width, device=q.device)
        indices = torch.empty(best.shape, dtype=torch.int64, device=q.device)
        for rows in _chunks(shape.length):
            products = torch.einsum("bthd,bnd->bthn", q[:, rows], k).relu_().float()
            scores = torch.einsum("bthn,bth->btn", products, weights[:, rows])
            scores.masked_fill_(columns >= problem.ends[rows, None], -torch.inf)
            best[:, rows], indices[:, rows] = scores.topk(width, dim=-1)
        return best, indices

    def backward(indices: "Tensor", grad: "Tensor") -> tuple["Tensor", ...]:
        found = _gradients(q, k, weights, indices, grad)
        return tuple(problem.in_layout(gradient) for gradient in found)

    def forward_and_backward() -> tuple["Tensor", ...]:
        scores, indices = forward()
        dq, dw, dk = backward(indices.masked_fill(scores == -torch.inf, -1), row_grad())
        return scores, indices, dq, dw, dk.to(k.dtype)

    row_grad = cache(lambda: problem.row_grad(width))
    return {
        "forward": forward,
        "backward": lambda: backward(answers.best[1], problem.grad),
        "forward+backward": forward_and_backward,
    }


def _gradients(
    q: "Tensor", k: "Tensor", weights: "Tensor", indices: "Tensor", grad: "Tensor"
) -> tuple["Tensor", "Tensor", "Tensor"]:
    """dq in q's dtype, dw and dk in float32, for indices and gradients [B, S, K]; a negative index has none."""
    import torch

    dq, dw = torch.empty_like(q), torch.empty_like(weights)
    dk = torch.zeros(k.shape, device=k.device)
    batch = torch.arange(q.shape[0], device=q.device)[:, None, None]
    for rows in _chunks(q.shape[1]):
        leaves = [tensor.detach().requires_grad_() for tensor in (q[:, rows], weights[:, rows], k.float())]
        some_q, some_weights, keys = leaves
        gathered = keys[batch, indices[:, rows].clamp(min=0).long()].to(q.dtype)
        products = torch.einsum("bthd,btnd->bthn", some_q, gathered).relu().float()
        scores = torch.einsum("bthn,bth->btn", products, some_weights)
        upstream = grad[:, rows].masked_fill(indices[:, rows] < 0, 0)
        dq[:, rows], dw[:, rows], some_dk = torch.autograd.grad(scores, leaves, upstream)
        dk += some_dk
    return dq, dw, dk


def _chunks(length: int) -> list[slice]:
    return [slice(t, t + CHUNK) for t in range(0, length, CHUNK)]
