"""Whether a rival computes what the package computes, so that nobody is timed at other work.

Scores. Sums in float32 are off by at most gamma = n u of the magnitudes they add up, u being a tensor core's 2^-22
(see `tolerance`) and n = D + H terms. A rival may besides round each product q.k and each weight to the input's dtype,
whose unit roundoff is v, as plain torch does: two roundings of each |w q.k|. Between two such scores there are at most

    (2 v + v^2) sum|w q.k|  +  2 gamma sum|w||q||k|

Selected scores, sorted. The j-th largest of a set moves by no more than its elements do, so the largest of the row's
bounds holds for each. That the right number of keys is there, each visible and once, allows no tolerance.

Gradients. Both sides may round g w, the weights and the result to the input's dtype. Such errors are independent and
of either sign, and so are the terms on random inputs: each rounding adds at most v / sqrt(3) of the gradient's norm,
six of them sqrt(6/3) v. GRADIENT_ROUNDINGS v is nearly three times that; a head that is left out of 64 is off by
1/8, a column of 512 by 1/23. A rival that selected for itself is held against the gradients of the keys that it
selected: those are judged on their own, and at the end of a row rounding may decide.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Any

from v4gen.run.answers import Answers
from v4gen.run.contest import Problem

if TYPE_CHECKING:
    from torch import Tensor

ACCUMULATOR = 2.0**-22
GRADIENT_ROUNDINGS = 4
SAMPLE = 24  # rows, beside those where a mask or a selection goes wrong first
CHUNK = 4096  # queries or keys whose gradients are compared at once


@dataclass(frozen=True)
class Row:
    """One query of one sample: the scores of its visible keys, and how far another's may be from them, [visible]."""

    batch: int
    query: int
    scores: "Tensor"
    bounds: "Tensor"

    def __str__(self) -> str:
        return f"at [{self.batch}, {self.query}]"


def disagreement(task: str, found: Any, problem: Problem, answers: Answers) -> str:
    """What is wrong about what a rival's task returned; empty where nothing is."""
    judges: Mapping[str, Callable[[Any, Problem, Answers], str]] = {
        "scores": _matrix,
        "select": _selection,
        "forward": _selection,
        "backward": _gradients,
        "forward+backward": _both,
    }
    return judges[task](found, problem, answers)


def sample_rows(problem: Problem) -> Iterator[Row]:
    """The first and last queries, those about the first key and the K-th, and some at random; the same on every run."""
    import torch

    shape = problem.shape
    edges = (0, shape.ratio - 1, shape.topk * shape.ratio - 1, (shape.topk + 1) * shape.ratio - 1)
    queries = {position - shape.offset + step for position in edges for step in (-1, 0)} | {0, shape.length - 1}
    generator = torch.Generator().manual_seed(5)
    queries |= set(torch.randint(shape.length, (SAMPLE,), generator=generator).tolist())
    for t in sorted(query for query in queries if 0 <= query < shape.length):
        yield _row(problem, int(torch.randint(shape.batch, (), generator=generator)), t)


def _row(problem: Problem, b: int, t: int) -> Row:
    """Scores in float32, by plain products."""
    import torch

    tensors = (problem.batch_first(tensor) for tensor in (problem.q, problem.k, problem.weights))
    q, k, weights = (tensor[b] for tensor in tensors)
    row, keys, w = q[t].float(), k[: int(problem.ends[t])].float(), weights[t] * problem.spec.weight_scale
    products = row @ keys.T
    roundoff, terms = torch.finfo(problem.dtype).eps / 2, problem.spec.heads + problem.spec.dim
    rounded = (2 * roundoff + roundoff**2) * (w.abs() @ products.abs())
    summed = 2 * terms * ACCUMULATOR * ((w.abs() @ row.abs()) @ keys.abs().T)
    return Row(b, t, w @ products.relu(), rounded + summed)


def _matrix(found: "Tensor", problem: Problem, answers: Answers) -> str:
    for row in sample_rows(problem):
        scores, visible = found[row.batch, row.query], row.scores.numel()
        if not bool((scores[visible:] == -float("inf")).all()):
            return f"a score out of sight {row}"
        excess = (scores[:visible] - row.scores).abs() > row.bounds
        if wrong := int((excess | scores[:visible].isnan()).sum()):
            return f"{wrong} of {visible} scores out of bounds {row}"
    return ""


def _selection(found: tuple["Tensor", "Tensor"], problem: Problem, answers: Answers) -> str:
    return next((f"{wrong} {row}" for row in sample_rows(problem) if (wrong := _wrong_keys(row, found, answers))), "")


def _wrong_keys(row: Row, found: tuple["Tensor", "Tensor"], answers: Answers) -> str:
    values, indices = (tensor[row.batch, row.query] for tensor in found)
    ours = answers.best[0][row.batch, row.query]
    is_key, visible = values > -float("inf"), row.scores.numel()
    values, keys, ours = values[is_key], indices[is_key].long(), ours[ours > -float("inf")]
    if len(keys) != len(ours):
        return f"{len(keys)} keys instead of {len(ours)}"
    ordered = keys.sort().values
    if bool((ordered.diff() == 0).any()) or bool(((keys < 0) | (keys >= visible)).any()):
        return "a key twice or out of sight"
    if bool(((values - row.scores[keys]).abs() > row.bounds[keys]).any()):
        return "a score that is not its key's"
    if len(keys) and bool(((values.sort().values - ours.sort().values).abs() > row.bounds.max()).any()):
        return "other keys selected"
    return ""


def _both(found: tuple["Tensor", ...], problem: Problem, answers: Answers) -> str:
    scores, indices, *gradients = found
    if wrong := _selection((scores, indices), problem, answers):
        return wrong
    keys = indices.masked_fill(scores == -float("inf"), -1).int()
    return _wrong_gradients(gradients, answers.gradients_of(keys, problem.row_grad(keys.shape[-1])), problem)


def _gradients(found: tuple["Tensor", ...], problem: Problem, answers: Answers) -> str:
    return _wrong_gradients(found, answers.gradients, problem)


def _wrong_gradients(found: Sequence["Tensor"], expected: Sequence["Tensor"], problem: Problem) -> str:
    import torch

    scale = problem.spec.weight_scale  # a rival's weights hold it
    limit = GRADIENT_ROUNDINGS * torch.finfo(problem.dtype).eps / 2
    for name, rival, ours, factor in zip(("dq", "dw", "dk"), found, expected, (1, scale, 1), strict=True):
        error = _distance(rival, ours, factor)
        if not error <= limit:
            return f"{name} off by {error:.2g} of its norm, at most {limit:.2g}"
    return ""


def _distance(found: "Tensor", expected: "Tensor", factor: float) -> float:
    """|found factor − expected| / |expected|, a chunk at a time in float64."""
    if found.shape != expected.shape:
        return float("inf")
    off, norm, longest = 0.0, 0.0, found.shape.index(max(found.shape))
    for start in range(0, found.shape[longest], CHUNK):
        length = min(CHUNK, found.shape[longest] - start)
        some, others = (tensor.narrow(longest, start, length).double() for tensor in (found, expected))
        off += float((some * factor - others).square().sum())
        norm += float(others.square().sum())
    return sqrt(off / norm) if norm else sqrt(off)
