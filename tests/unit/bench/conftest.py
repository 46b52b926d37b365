"""What the tests of the benchmark run: a package, and its operator, in plain torch."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from v4gen.read.spec import Spec
from v4gen.run import bench
from v4gen.run.answers import Answers
from v4gen.run.contest import Problem, Shape
from v4gen.run.package import Package


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """The problems are small, and threads that wait on each other cost more than they do."""
    torch.set_num_threads(1)


@pytest.fixture
def spec() -> Spec:
    return Spec(schema="v4gen/1", name="one", heads=4, dim=32, topk=8, compress_ratio=4, targets=("cpu",))


@pytest.fixture
def shape(spec: Spec) -> Shape:
    return Shape.of(spec, length=150, batch=2)


@pytest.fixture
def answers(spec: Spec, shape: Shape) -> Answers:
    return Answers(make_package("BSHD"), Problem(spec, shape, "cpu"))


@pytest.fixture
def plain_package() -> Callable[[str], Package]:
    """What the benchmark calls of a package of this layout, in plain torch."""
    return make_package


@pytest.fixture
def small_runs(monkeypatch: pytest.MonkeyPatch, answers: Answers) -> None:
    """`bench_package` takes the plain package, whatever the folder, and is done at once."""

    @contextmanager
    def imported(folder: Path, target: str | None = None) -> Iterator[Package]:
        yield answers.package

    monkeypatch.setattr(bench, "imported_package", imported)
    monkeypatch.setattr(bench, "ROUNDS", {"cpu": 2})
    monkeypatch.setattr(bench, "MATMUL_SIZE", {"cpu": 8})
    monkeypatch.setattr(bench, "COPY_BYTES", {"cpu": 1024})


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_runs: None) -> Path:
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "one.yaml").write_text(
        "schema: v4gen/1\nname: one\nheads: 4\ndim: 32\ntopk: 8\ncompress_ratio: 4\nlayout: BSHD\ntargets: [cpu]\n"
    )
    (tmp_path / "generated" / "one").mkdir(parents=True)
    (tmp_path / "generated" / "one" / "__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("v4gen.cli.bench.require_runtime", lambda device: None)
    return tmp_path


@pytest.fixture
def operator() -> SimpleNamespace:
    """The same, batch first."""
    return SimpleNamespace(score_matrix=score_matrix, best=best, causal=causal, gradients=gradients)


def score_matrix(q: Tensor, k: Tensor, weights: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
    products = torch.einsum("bthd,bnd->bthn", q.float(), k.float()).relu()
    hidden = torch.arange(k.shape[1]) >= ends.unsqueeze(-1)
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


def gradients(q: Tensor, weights: Tensor, k: Tensor, indices: Tensor, grad: Tensor) -> tuple[Tensor, ...]:
    inputs = [tensor.float().requires_grad_() for tensor in (q, weights, k)]
    q, weights, k = inputs
    everything = torch.full((q.shape[1],), k.shape[1])
    scores = score_matrix(q, k, weights, everything, everything).gather(-1, indices.clamp(min=0).long())
    dq, dw, dk = torch.autograd.grad((scores * grad).masked_fill(indices < 0, 0).sum(), inputs)
    return dq.bfloat16(), dw, dk


def make_package(layout: str) -> Package:
    def turned(*tensors: Tensor) -> Iterator[Tensor]:
        return (tensor.transpose(0, 1) if layout == "SBHD" else tensor for tensor in tensors)

    def matrix(q: Tensor, k: Tensor, weights: Tensor, *ranges: Tensor) -> Tensor:
        return score_matrix(*turned(q, k, weights), *ranges)

    def write_scores(q: Tensor, k: Tensor, weights: Tensor, ranges: None, window: Tensor, *place: int) -> None:
        offset, ratio = place[2:]
        window[..., : k.shape[1]] = score_matrix(q, k, weights, *causal(q.shape[1], k.shape[1], ratio, "cpu", offset))

    def select_best(scores: Tensor, ranges: None, width: int, offset: int, ratio: int) -> tuple[Tensor, Tensor]:
        return best(scores, *causal(scores.shape[1], scores.shape[2], ratio, "cpu", offset), width)

    def select(q: Tensor, k: Tensor, weights: Tensor, ratio: int, topk: int, given: None, offset: int) -> Any:
        length, keys = (next(turned(tensor)).shape[1] for tensor in (q, k))
        ranges = causal(length, keys, ratio, "cpu", offset)
        return best(matrix(q, k, weights, *ranges), *ranges, topk)

    def backward(q: Tensor, weights: Tensor, k: Tensor, indices: Tensor, grad: Tensor) -> tuple[Tensor, ...]:
        q, weights, k = turned(q, weights, k)
        return tuple(turned(*gradients(q, weights, k, indices, grad)))

    fwd = SimpleNamespace(
        batched_indexer_fwd=matrix,
        operands=lambda *inputs: tuple(turned(*inputs)),
        write_scores=write_scores,
        _make_causal_cu_seqlens=causal,
    )
    topk = SimpleNamespace(select=select_best)
    indexer = SimpleNamespace(_ops=SimpleNamespace(checked_select=select), tilelang_indexer_topk=topk)
    bwd = SimpleNamespace(batched_indexer_bwd=backward)
    return cast(Package, SimpleNamespace(fwd=fwd, bwd=bwd, indexer=indexer, target_for=lambda device: device))
