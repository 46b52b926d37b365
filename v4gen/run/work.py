"""What a task of the benchmark costs, whoever runs it: operations, and bytes that it must move."""

from dataclasses import dataclass

from v4gen.plan.budget import HALF_BYTES
from v4gen.plan.cost import (
    backward_bytes,
    backward_flops,
    forward_bytes,
    scores_bytes,
    scores_flops,
    selection_bytes,
)
from v4gen.run.contest import Problem


@dataclass(frozen=True)
class Work:
    """Operations and bytes of a call; 0 operations where there is no matrix product in it."""

    flops: int
    bytes: int


def work_of(task: str, problem: Problem) -> Work:
    """The work of one of `Answers.tasks` on the problem. Every mask is run as a causal one."""
    spec, shape = problem.spec, problem.shape
    queries, keys = shape.batch * shape.length, shape.batch * shape.keys
    columns = queries * problem.width
    sizes = (spec.heads, spec.dim, queries, keys)
    forward = Work(scores_flops(spec.heads, spec.dim, shape.pairs), forward_bytes(*sizes, columns, HALF_BYTES))
    backward = Work(backward_flops(spec.heads, spec.dim, shape.selected), backward_bytes(*sizes, columns, HALF_BYTES))
    match task:
        case "kernel":  # writes nothing out of sight
            return Work(forward.flops, scores_bytes(*sizes, shape.pairs, HALF_BYTES))
        case "scores":
            return Work(forward.flops, scores_bytes(*sizes, queries * shape.keys, HALF_BYTES))
        case "select":
            return Work(0, selection_bytes(shape.pairs, columns))
        case "forward":
            return forward
        case "backward" | "reproducible backward":
            return backward
        case "forward+backward":
            through_autograd = backward_bytes(*sizes, columns, HALF_BYTES, dk_element=HALF_BYTES)
            return Work(forward.flops + backward.flops, forward.bytes + through_autograd)
    raise ValueError(f"`{task}` is no task of the benchmark")
