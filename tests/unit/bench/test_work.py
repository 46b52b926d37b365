"""Operations and bytes by formula are those of a count of everything, whatever the mask."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from v4gen.plan.cost import scores_bytes
from v4gen.read.rules import MASKS
from v4gen.read.spec import Spec
from v4gen.run.answers import Answers
from v4gen.run.contest import Problem, Shape
from v4gen.run.package import Package
from v4gen.run.timing import COPY, MATMUL, Contest, Timing
from v4gen.run.work import Work, work_of

SHAPES = [
    {"length": 13, "batch": 1},
    {"length": 3, "batch": 2},  # shorter than a window: no key
    {"length": 9, "batch": 1, "offset": 6},
    {"length": 17, "batch": 1, "ratio": 1, "topk": 5},
]


def problems() -> Iterator[Problem]:
    base: dict[str, Any] = {"schema": "v4gen/1", "name": "one", "heads": 4, "dim": 32, "topk": 2, "compress_ratio": 4}
    for layout, masks in MASKS.items():
        for mask in masks:
            for width in ("min", "topk"):
                spec = Spec.model_validate(base | {"layout": layout, "mask": mask, "width": width, "targets": ["cpu"]})
                for numbers in SHAPES:
                    if layout != "THD" or numbers["batch"] == 1:
                        yield Problem(spec, Shape.of(spec, **numbers), "cpu")


def name(problem: Problem) -> str:
    return f"{problem.spec.layout}-{problem.spec.mask}-{problem.spec.width}-{problem.shape}"


def ranges(answers: Answers) -> list[tuple[int, int]]:
    """First key and one past the last of each query, as the kernels are told them."""
    starts, ends = answers._ranges()
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


def counted(problem: Problem, answers: Answers) -> dict[str, Work]:
    """Every product of every pair, and every element of every tensor, one by one."""
    spec, shape = problem.spec, problem.shape
    pairs = selected = products = 0
    for _ in range(shape.batch):
        for start, end in ranges(answers):
            for seen, _key in enumerate(range(start, end)):
                pairs += 1
                selected += seen < shape.topk
    for _head in range(spec.heads):
        for _element in range(spec.dim):
            products += 1  # of one pair
    inputs = size(problem.q, problem.k, problem.weights)
    columns = 0
    for _ in range(shape.batch * shape.length):
        columns += min(shape.topk, shape.keys) if spec.width == "min" else shape.topk
    result = columns * (size(torch.zeros(1)) + size(torch.zeros(1, dtype=torch.int32)))
    dq, dw = torch.empty_like(problem.q), torch.empty_like(problem.weights)
    low = size(dq, dw, torch.empty_like(problem.k, dtype=torch.float32))
    through_autograd = size(dq, dw, torch.empty_like(problem.k))
    matrix = size(torch.empty(shape.batch, shape.length, shape.keys))
    forward, backward = 2 * products * pairs, 3 * 2 * products * selected
    return {
        "kernel": Work(forward, inputs + 4 * pairs),
        "scores": Work(forward, inputs + matrix),
        "select": Work(0, 4 * pairs + result),
        "forward": Work(forward, inputs + result),
        "backward": Work(backward, inputs + result + low),
        "reproducible backward": Work(backward, inputs + result + low),
        "forward+backward": Work(forward + backward, 2 * (inputs + result) + through_autograd),
    }


def size(*tensors: Tensor) -> int:
    return sum(tensor.element_size() for tensor in tensors for _ in range(math.prod(tensor.shape)))


@pytest.mark.parametrize("problem", list(problems()), ids=name)
def test_work_is_what_is_counted(problem: Problem, plain_package: Callable[[str], Package]) -> None:
    answers = Answers(plain_package(problem.spec.layout), problem)
    expected = counted(problem, answers)
    assert {task: work_of(task, problem) for task in answers.tasks()} == expected


def test_no_other_task_has_work(answers: Answers) -> None:
    with pytest.raises(ValueError, match="`copy` is no task"):
        work_of(COPY, answers.problem)


@pytest.mark.parametrize(("changes", "bound"), [({}, 3.0), ({"flops": 0}, 1.5), ({"bytes": 0}, None)])
def test_the_roofline_is_the_slower_of_both_ceilings(
    shape: Shape, changes: dict[str, int], bound: float | None
) -> None:
    def timing(task: str, milliseconds: float, **numbers: Any) -> Timing:
        return Timing(task, "torch", shape, milliseconds, milliseconds, milliseconds, **numbers)

    ceilings = (timing(MATMUL, 2, flops=1000, bytes=1), timing(COPY, 1, bytes=400))
    task = timing("forward", 6, **({"flops": 1500, "bytes": 600} | changes))
    contest = Contest((*ceilings, task), ())
    assert contest.bound_ms(task) == (None if bound is None else pytest.approx(bound))
    assert contest.roofline(task) == (None if bound is None else pytest.approx(bound / 6))
    assert Contest((task,), ()).bound_ms(task) is None


def test_bytes_of_scores_by_hand() -> None:
    # 2 queries of 3 heads of 4: q 48 bytes, weights 24; 5 keys: 40; 7 scores: 28.
    assert scores_bytes(3, 4, 2, 5, 7, 2) == 48 + 24 + 40 + 28
