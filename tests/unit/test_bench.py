"""A rival is timed at the package's own work or not at all; shapes, numbers and reasons reach the reader."""

import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from click.testing import CliRunner
from rich.console import Console
from torch import Tensor

from v4gen.cli import main
from v4gen.cli.bench import RIVALS as OFFERED
from v4gen.read.spec import Spec
from v4gen.report.bench import bench_report
from v4gen.report.chart import lines, write_chart
from v4gen.run import bench
from v4gen.run.agreement import disagreement
from v4gen.run.bench import MATMUL, OURS, Contest, Timing, bench_package
from v4gen.run.contest import MATRIX_LIMIT, Answers, Problem, Shape, Tasks, Unfit, drawn_shapes
from v4gen.run.package import Package
from v4gen.run.rivals import RIVALS, Rival, torch_tasks

SPEC = Spec(schema="v4gen/1", name="one", heads=4, dim=32, topk=8, compress_ratio=4, layout="BSHD", targets=("cpu",))
SHAPE = Shape.of(SPEC, length=150, batch=2)
TASKS = ["scores", "select", "forward", "backward"]


def score_matrix(q: Tensor, k: Tensor, weights: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
    products = torch.einsum("bthd,bnd->bthn", q.float(), k.float()).relu()
    hidden = torch.arange(k.shape[1]) >= ends[:, None]
    return torch.einsum("bthn,bth->btn", products, weights).masked_fill(hidden, -torch.inf)


def best(matrix: Tensor, starts: Tensor, ends: Tensor, width: int) -> tuple[Tensor, Tensor]:
    found = matrix.topk(min(width, matrix.shape[-1]), dim=-1)
    pad = (0, width - found.values.shape[-1])
    scores = torch.nn.functional.pad(found.values, pad, value=-torch.inf)
    indices = torch.nn.functional.pad(found.indices, pad, value=-1).int()
    return scores, indices.masked_fill(scores == -torch.inf, -1)


def causal(length: int, keys: int, ratio: int, device: str, offset: int = 0) -> tuple[Tensor, Tensor]:
    ends = ((torch.arange(length) + offset + 1) // ratio).clamp(max=keys)
    return torch.zeros_like(ends), ends


def select(q: Tensor, k: Tensor, weights: Tensor, ratio: int, topk: int, given: None, offset: int) -> Any:
    ranges = causal(q.shape[1], k.shape[1], ratio, "cpu", offset)
    return best(score_matrix(q, k, weights, *ranges), *ranges, topk)


def backward(q: Tensor, weights: Tensor, k: Tensor, indices: Tensor, grad: Tensor) -> tuple[Tensor, ...]:
    inputs = [tensor.float().requires_grad_() for tensor in (q, weights, k)]
    q, weights, k = inputs
    everything = torch.full((q.shape[1],), k.shape[1])
    scores = score_matrix(q, k, weights, everything, everything).gather(-1, indices.clamp(min=0).long())
    dq, dw, dk = torch.autograd.grad((scores * grad).masked_fill(indices < 0, 0).sum(), inputs)
    return dq.bfloat16(), dw, dk


PLAIN = cast(
    Package,
    SimpleNamespace(
        fwd=SimpleNamespace(batched_indexer_fwd=score_matrix, _make_causal_cu_seqlens=causal),
        bwd=SimpleNamespace(batched_indexer_bwd=backward),
        indexer=SimpleNamespace(
            _ops=SimpleNamespace(select=select), tilelang_indexer_topk=SimpleNamespace(select=best)
        ),
    ),
)
"""What the benchmark calls of a package, in plain torch."""


@pytest.fixture
def answers() -> Answers:
    return Answers(PLAIN, Problem(SPEC, SHAPE, "cpu"))


@pytest.fixture(autouse=True)
def small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def imported(folder: Path) -> Iterator[Package]:
        yield PLAIN

    monkeypatch.setattr(bench, "imported_package", imported)
    monkeypatch.setattr(bench, "ROUNDS", {"cpu": 2})
    monkeypatch.setattr(bench, "MATMUL_SIZE", {"cpu": 8})


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Contest]:
    """Bench the plain package beside a rival with these tasks."""

    def run(tasks: Callable[[Problem, Answers], Tasks]) -> Contest:
        monkeypatch.setitem(cast(dict[str, Rival], RIVALS), "fake", Rival("fake", tasks))
        return bench_package(Path(), SPEC, "cpu", [SHAPE], ["fake"])

    return run


def text(contest: Contest) -> str:
    console = Console(width=160, file=io.StringIO())
    with console.capture() as captured:
        console.print(bench_report("one", "cpu", contest))
    return captured.get()


# Rivals


def test_the_command_offers_every_rival() -> None:
    assert set(OFFERED) == set(RIVALS)


def test_a_rival_that_agrees_is_timed_at_every_task(run: Callable[..., Contest]) -> None:
    contest = run(lambda problem, answers: answers.tasks())
    assert not contest.skips
    assert [(t.task, t.who) for t in contest.timings] == [
        (MATMUL, "torch"),
        *((task, OURS) for task in TASKS),
        *((task, "fake") for task in TASKS),
    ]
    assert all(timing.fastest_ms <= timing.median_ms <= timing.slowest_ms for timing in contest.timings)


def test_a_wrong_task_is_named_and_the_others_are_timed(run: Callable[..., Contest]) -> None:
    def tasks(problem: Problem, answers: Answers) -> Tasks:
        scores, indices = answers.best
        return {"forward": lambda: (scores + 1000, indices), "backward": answers.backward}

    contest = run(tasks)
    assert [(skip.task, skip.who) for skip in contest.skips] == [("forward", "fake")]
    assert contest.skips[0].reason.startswith("wrong: a score that is not its key's at [")
    assert contest.find("backward", "fake", SHAPE)
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
    run: Callable[..., Contest], error: Exception, reason: str, when: str
) -> None:
    def fail() -> Any:
        raise error

    def tasks(problem: Problem, answers: Answers) -> Tasks:
        return fail() if when == "asked" else {"forward": fail}

    contest = run(tasks)
    assert [(skip.task, skip.reason) for skip in contest.skips] == [("all" if when == "asked" else "forward", reason)]
    assert contest.as_data()["skipped"][0]["reason"] == reason
    assert f"fake: {reason}" in text(contest)
    assert contest.find("forward", OURS, SHAPE)


def test_plain_torch_agrees(run: Callable[..., Contest]) -> None:
    assert run(torch_tasks).find("forward", "fake", SHAPE)


@pytest.mark.parametrize("name", ["cudnn", "nemo"])
def test_an_installed_rival_is_not_needed(name: str, answers: Answers) -> None:
    if RIVALS[name].version:
        pytest.skip(f"{name} is installed")
    with pytest.raises(Unfit, match="not installed"):
        RIVALS[name].tasks(answers.problem, answers)


def test_too_large_a_matrix_is_not_made(answers: Answers) -> None:
    shape = Shape.of(SPEC, length=1 << 18)
    assert shape.length * shape.keys * 4 > MATRIX_LIMIT
    large = replace(answers, problem=replace(answers.problem, shape=shape))
    with pytest.raises(Unfit, match="would take 64 GiB"):
        large.select()


# Agreement


def test_own_results_agree(answers: Answers) -> None:
    found = {"scores": answers.matrix, "select": answers.best, "forward": answers.best, "backward": answers.gradients}
    assert not any(disagreement(task, found[task], answers.problem, answers) for task in TASKS)


def test_a_void_column_may_hold_any_index(answers: Answers) -> None:
    scores, indices = answers.best
    assert not disagreement("forward", (scores, indices.clamp(min=0)), answers.problem, answers)


def test_neither_width_nor_order_matters(answers: Answers) -> None:
    scores, indices = (torch.nn.functional.pad(tensor.double(), (3, 0), value=-torch.inf) for tensor in answers.best)
    assert not disagreement("forward", (scores.flip(-1), indices.flip(-1)), answers.problem, answers)


def _masked(row: int, column: int) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    def spoil(scores: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
        scores[:, row, column] = -torch.inf
        return scores, indices

    return spoil


def _repeated(scores: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    indices[:, 8:, 1], scores[:, 8:, 1] = indices[:, 8:, 0], scores[:, 8:, 0]
    return scores, indices


def _void(scores: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    return scores, torch.where(torch.arange(indices.shape[-1]) == 2, -1, indices)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_masked(3, 0), "0 keys instead of 1 at ["),  # the first query that sees a key
        (_masked(-1, 7), "7 keys instead of 8 at ["),
        (_repeated, "a key twice or out of sight at ["),
        (_void, "a key twice or out of sight at ["),
        (lambda scores, indices: (scores * 1.1, indices), "a score that is not its key's at ["),
        (lambda scores, indices: (scores * torch.nan, indices), "keys instead of"),
    ],
)
def test_a_wrong_selection(answers: Answers, spoil: Callable[..., Any], message: str) -> None:
    found = spoil(*(tensor.clone() for tensor in answers.best))
    assert message in disagreement("select", found, answers.problem, answers)


def test_keys_that_are_not_the_best(answers: Answers) -> None:
    worst = (-answers.matrix).masked_fill(answers.matrix == -torch.inf, -torch.inf).topk(8, dim=-1)
    visible = worst.values > -torch.inf
    found = (torch.where(visible, -worst.values, -torch.inf), torch.where(visible, worst.indices, -1))
    assert "other keys selected at [" in disagreement("forward", found, answers.problem, answers)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [(0, torch.nan, "scores out of bounds at ["), (0, 1e3, "1 of "), (-1, 0.0, "a score out of sight at [")],
)
def test_a_wrong_matrix(answers: Answers, column: int, value: float, message: str) -> None:
    matrix = answers.matrix.clone()
    matrix[:, 4:100, column] = value  # queries that see the first key and not the last
    assert message in disagreement("scores", matrix, answers.problem, answers)


@pytest.mark.parametrize("position", range(3))
@pytest.mark.parametrize("spoil", [lambda t: t * 1.05, torch.zeros_like, lambda t: t * torch.nan, lambda t: t[:1]])
def test_a_wrong_gradient(answers: Answers, position: int, spoil: Callable[[Tensor], Tensor]) -> None:
    found = list(answers.gradients)
    found[position] = spoil(found[position])
    wrong = disagreement("backward", tuple(found), answers.problem, answers)
    assert wrong.startswith(f"{('dq', 'dw', 'dk')[position]} off by ")


def test_a_weight_scale_is_in_the_weights_of_rivals() -> None:
    problem = Problem(SPEC.model_copy(update={"weight_scale": 0.5}), SHAPE, "cpu")
    halved = cast(Any, lambda q, k, weights, *rest: select(q, k, weights / 2, *rest))
    indexer = SimpleNamespace(_ops=SimpleNamespace(select=halved))
    answers = Answers(cast(Package, SimpleNamespace(indexer=indexer)), problem)
    assert not disagreement("forward", torch_tasks(problem, answers)["forward"](), problem, answers)


# Shapes


def test_a_shape_takes_the_rest_from_the_spec() -> None:
    assert Shape.of(SPEC, length=64) == Shape(1, 64, 0, 4, 8)
    assert Shape.of(SPEC, length=1, batch=64, offset=131071).keys == 32768
    assert str(Shape.of(SPEC, length=1, offset=7)) == "B=1 S=1 from 7 N=2 r=4 K=8"
    with pytest.raises(ValueError, match="`topk` is 4097, expected 1 … 4096"):
        Shape.of(SPEC, length=64, topk=4097)


@pytest.mark.parametrize("ratio", [1, 2, 4])
def test_drawn_shapes_fit_no_tile_and_come_again(ratio: int) -> None:
    spec = SPEC.model_copy(update={"compress_ratio": ratio})
    shapes = drawn_shapes(spec, 40, seed=3)
    assert shapes == drawn_shapes(spec, 40, seed=3) != drawn_shapes(spec, 40, seed=4)
    assert all(shape.length % 2 and shape.keys % 2 and 4096 <= shape.length <= 65536 for shape in shapes)
    assert min(shape.length for shape in shapes) < 8192 < 32768 < max(shape.length for shape in shapes)


def test_packed_tokens_are_one_batch() -> None:
    packed = SPEC.model_copy(update={"layout": "THD"})
    problem = Problem(packed, Shape.of(packed, length=12), "cpu")
    assert problem.q.shape == (12, 4, 32)
    assert problem.batch_first(problem.q).shape == (1, 12, 4, 32)
    assert problem.in_layout(problem.batch_first(problem.k)).shape == (3, 32)
    with pytest.raises(Unfit, match="one batch"):
        Problem(packed, SHAPE, "cpu")


# The command


def run_command(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["bench", *arguments])


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "one.yaml").write_text(
        "schema: v4gen/1\nname: one\nheads: 4\ndim: 32\ntopk: 8\ncompress_ratio: 4\nlayout: BSHD\ntargets: [cpu]\n"
    )
    (tmp_path / "generated" / "one").mkdir(parents=True)
    (tmp_path / "generated" / "one" / "__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("v4gen.cli.bench.require_runtime", lambda device: None)
    return tmp_path


def test_one_record_of_many_shapes(project: Path) -> None:
    shapes = ["--shape", "length=40", "--shape", "length=8,batch=3,offset=4,ratio=1,topk=5"]
    result = run_command(*shapes, "--rival", "torch", "--rival", "nemo", "--json", "--record", "record.json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["results"]["one"]
    assert [*found] == ["seed", "rivals", "timings", "skipped"]
    assert found == json.loads((project / "record.json").read_text())["bench"]
    assert found["rivals"]["torch"] == RIVALS["torch"].version
    assert [entry["reason"] for entry in found["skipped"]] == ["nemo_automodel is not installed"] * 2
    timed = {(entry["length"], entry["batch"], entry["keys"], entry["topk"]) for entry in found["timings"]}
    assert timed == {(40, 1, 10, 8), (8, 3, 12, 5)}
    (forward,) = (t for t in found["timings"] if (t["task"], t["who"], t["length"]) == ("forward", "torch", 40))
    assert forward["of_v4gen"] > 0 and forward["of_matmul"] > 0


def test_a_drawn_seed_is_printed(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("v4gen.run.contest.DRAWN_LENGTHS", (16, 64))
    assert "shapes drawn with --seed 11\n" in run_command("--drawn", "2", "--seed", "11").stdout
    assert json.loads(run_command("--drawn", "2", "--json").stdout)["results"]["one"]["seed"] is not None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shape", "batch=2"], "length always"),
        (["--shape", "length=2,length=3"], "at most once"),
        (["--shape", "size=2,length=3"], "expected length=…, batch=…"),
        (["--shape", "length=-1"], "`-1` is no number"),
        (["--shape", "length=0"], "`length` is 0"),
        (["--seed", "1"], "say how many shapes to draw"),
        (["--chart", "x.pdf"], "let it end in .svg or .png"),
        (["--rival", "nobody"], "nobody"),
    ],
)
def test_bad_usage_is_2(project: Path, arguments: list[str], message: str) -> None:
    result = run_command(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.output.replace("│", " ").split())


# The chart


def _timed(length: int, who: str, milliseconds: float, **numbers: int) -> Timing:
    shape = Shape.of(SPEC, length=length, **numbers)
    return Timing("forward", who, shape, milliseconds, milliseconds, milliseconds, 0, 0, -1)


def test_a_line_joins_shapes_that_differ_in_length_alone(tmp_path: Path) -> None:
    timings = [_timed(64, "torch", 3), _timed(32, OURS, 1), _timed(64, OURS, 2), _timed(64, OURS, 9, ratio=1)]
    contest = Contest(tuple(timings), ())
    usual = "batch 1, ratio 4, top-k 8"
    assert list(lines(contest)) == [
        (OURS, usual, [(32, 1), (64, 2)]),
        ("torch", usual, [(64, 3)]),
        (OURS, "batch 1, ratio 1, top-k 8", [(64, 9)]),
    ]
    for name in ("a.svg", "b.svg"):
        write_chart(tmp_path / name, "one on cpu", contest)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert f"v4gen, {usual}" in (tmp_path / "a.svg").read_text()
