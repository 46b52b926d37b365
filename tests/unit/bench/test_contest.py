"""Rivals are timed or left out with a reason; shapes come from specs, options and chance."""

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from rich.console import Console

from v4gen.cli import bench as command
from v4gen.read.spec import Spec
from v4gen.report.bench import bench_report
from v4gen.run.answers import MATRIX_LIMIT, Answers
from v4gen.run.bench import Course, bench_package
from v4gen.run.contest import Problem, Shape, Tasks, Unfit, drawn_shapes
from v4gen.run.plain import torch_tasks
from v4gen.run.rivals import RIVALS, Rival
from v4gen.run.timing import COPY, MATMUL, OURS, Contest

TASKS = ["scores", "select", "forward", "backward", "forward+backward"]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, small_runs: None, spec: Spec, shape: Shape) -> Callable[..., Contest]:
    """Bench the plain package beside a rival with these tasks."""

    def run(tasks: Callable[[Problem, Answers], Tasks]) -> Contest:
        monkeypatch.setitem(cast(dict[str, Rival], RIVALS), "fake", Rival("fake", tasks))
        return bench_package(Path(), spec, "cpu", [shape], Course(rivals=["fake"]))

    return run


def text(contest: Contest) -> str:
    console = Console(width=160, file=io.StringIO())
    with console.capture() as captured:
        for shape in contest.shapes:
            console.print(bench_report("one", "cpu", contest, shape))
    return captured.get()


def test_the_command_offers_every_rival_and_task(answers: Answers) -> None:
    assert set(command.RIVALS) == set(RIVALS)
    assert tuple(answers.tasks()) == command.TASKS


def test_a_rival_that_agrees_is_timed_at_every_task(run: Callable[..., Contest]) -> None:
    contest = run(lambda problem, answers: {task: answers.tasks()[task] for task in TASKS})
    assert not contest.skips
    assert [(t.task, t.who) for t in contest.timings] == [
        (MATMUL, "torch"),
        (COPY, "torch"),
        ("kernel", OURS),
        *((task, OURS) for task in TASKS),
        ("reproducible backward", OURS),
        *((task, "fake") for task in TASKS),
    ]
    assert all(timing.fastest_ms <= timing.median_ms <= timing.slowest_ms for timing in contest.timings)


def test_a_wrong_task_is_named_and_the_others_are_timed(run: Callable[..., Contest], shape: Shape) -> None:
    def tasks(problem: Problem, answers: Answers) -> Tasks:
        scores, indices = answers.best
        return {"forward": lambda: (scores + 1000, indices), "backward": answers.backward}

    contest = run(tasks)
    assert [(skip.task, skip.who) for skip in contest.skips] == [("forward", "fake")]
    assert contest.skips[0].reason.startswith("wrong: a score that is not its key's at [")
    assert contest.find("backward", "fake", shape)
    assert "forward, fake: wrong: a score that is not its key's at [" in text(contest)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Unfit("is not installed"), "is not installed"),
        (torch.OutOfMemoryError("tried to allocate 128 GiB"), "out of memory"),
        (AssertionError("topk must be\n a power of two"), "raised AssertionError: topk must be a power of two"),
    ],
)
@pytest.mark.parametrize("when", ["asked", "run"])
def test_a_rival_that_cannot_is_skipped_with_the_reason(
    run: Callable[..., Contest], shape: Shape, error: Exception, reason: str, when: str
) -> None:
    def fail() -> Any:
        raise error

    def tasks(problem: Problem, answers: Answers) -> Tasks:
        return fail() if when == "asked" else {"forward": fail}

    contest = run(tasks)
    assert [(skip.task, skip.reason) for skip in contest.skips] == [("all" if when == "asked" else "forward", reason)]
    assert contest.as_data()["skipped"][0]["reason"] == reason
    assert f"fake: {reason}" in text(contest)
    assert contest.find("forward", OURS, shape)


def test_plain_torch_agrees(run: Callable[..., Contest], shape: Shape) -> None:
    contest = run(torch_tasks)
    assert not contest.skips
    assert all(contest.find(task, "fake", shape) for task in ("forward", "backward", "forward+backward"))


@pytest.mark.parametrize("name", ["cudnn", "flashinfer", "megatron", "nemo"])
def test_an_installed_rival_is_not_needed(name: str, answers: Answers) -> None:
    if RIVALS[name].version:
        pytest.skip(f"{name} is installed")
    with pytest.raises(Unfit, match="not installed"):
        RIVALS[name].tasks(answers.problem, answers)


def test_too_large_a_matrix_is_not_made(answers: Answers, spec: Spec) -> None:
    shape = Shape.of(spec, length=1 << 18)
    assert shape.length * shape.keys * 4 > MATRIX_LIMIT
    large = replace(answers, problem=replace(answers.problem, shape=shape))
    with pytest.raises(Unfit, match="would take 64 GiB"):
        large.select()


def test_a_shape_takes_the_rest_from_the_spec(spec: Spec) -> None:
    assert Shape.of(spec, length=64) == Shape(1, 64, 0, 4, 8)
    assert Shape.of(spec, length=1, batch=64, offset=131071).keys == 32768
    assert str(Shape.of(spec, length=1, offset=7)) == "B=1 S=1 from 7 N=2 r=4 K=8"
    with pytest.raises(ValueError, match="`topk` is 4097, expected 1 … 4096"):
        Shape.of(spec, length=64, topk=4097)


@pytest.mark.parametrize("ratio", [1, 2, 4])
def test_drawn_shapes_fit_no_tile_and_come_again(spec: Spec, ratio: int) -> None:
    spec = spec.model_copy(update={"compress_ratio": ratio})
    shapes = drawn_shapes(spec, 40, seed=3)
    assert shapes == drawn_shapes(spec, 40, seed=3) != drawn_shapes(spec, 40, seed=4)
    assert all(shape.length % 2 and shape.keys % 2 and 4096 <= shape.length <= 65536 for shape in shapes)
    assert min(shape.length for shape in shapes) < 8192 < 32768 < max(shape.length for shape in shapes)


def test_packed_tokens_are_one_batch(spec: Spec, small_runs: None) -> None:
    packed = spec.model_copy(update={"layout": "THD"})
    problem = Problem(packed, Shape.of(packed, length=12), "cpu")
    assert problem.q.shape == (12, 4, 32)
    assert problem.batch_first(problem.q).shape == (1, 12, 4, 32)
    assert problem.in_layout(problem.batch_first(problem.k)).shape == (3, 32)
    contest = bench_package(Path(), packed, "cpu", [Shape.of(packed, length=12, batch=2)])
    assert not contest.timings
    assert "all" not in text(contest) and "v4gen: packed tokens (THD) are one batch" in text(contest)
