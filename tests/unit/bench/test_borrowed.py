"""NeMo, Megatron and FlashInfer, their kernels replaced by plain torch: what goes in and out is laid out right."""

import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from v4gen.read.spec import Spec
from v4gen.run.agreement import disagreement
from v4gen.run.answers import Answers
from v4gen.run.borrowed import borrowed
from v4gen.run.contest import Problem, Shape, Unfit
from v4gen.run.package import Package
from v4gen.run.rivals import MEGATRON_KERNELS, NEMO_KERNELS, RIVALS

TASKS = ["scores", "forward", "backward", "forward+backward"]


def install(monkeypatch: pytest.MonkeyPatch, folder: str, modules: dict[str, dict[str, Any]]) -> None:
    for name, members in {folder: {}, **{f"{folder}.{name}": members for name, members in modules.items()}}.items():
        module = ModuleType(name)
        module.__path__ = []
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)


@pytest.fixture
def nemo(monkeypatch: pytest.MonkeyPatch, operator: SimpleNamespace) -> None:
    """Its three modules, of SBHD; a column without a key holds -1, as it does there."""

    def turned(*tensors: Tensor) -> list[Tensor]:
        return [tensor.transpose(0, 1) for tensor in tensors]

    def fwd(q: Tensor, k: Tensor, weights: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
        found: Tensor = operator.score_matrix(*turned(q, k, weights), starts, ends)
        return found

    def bwd(q: Tensor, weights: Tensor, k: Tensor, indices: Tensor, grad: Tensor) -> tuple[Tensor, ...]:
        assert indices.dtype == torch.int32 and grad.is_contiguous()
        return tuple(turned(*operator.gradients(*turned(q, weights, k), indices, grad)))

    def v4_lighting_indexer(q: Tensor, k: Tensor, weights: Tensor, ratio: int, topk: int) -> Any:
        ranges = operator.causal(len(q), len(k), ratio, "cpu")
        return operator.best(fwd(q, k, weights, *ranges), *ranges, min(topk, len(k)))

    modules: dict[str, dict[str, Any]] = {
        "tilelang_indexer_fwd": {"batched_indexer_fwd": fwd, "_make_causal_cu_seqlens": operator.causal},
        "tilelang_indexer_bwd": {"batched_indexer_bwd": bwd},
        "tilelang_indexer": {"v4_lighting_indexer": v4_lighting_indexer},
    }
    install(monkeypatch, NEMO_KERNELS, modules)


@pytest.fixture
def megatron(monkeypatch: pytest.MonkeyPatch, operator: SimpleNamespace) -> None:
    """Its three modules, of one sequence; keys come unsorted, as they do there."""

    def one(tensor: Tensor) -> Tensor:
        return tensor.unsqueeze(0)

    def fwd(q: Tensor, k: Tensor, weights: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
        assert starts.dtype == ends.dtype == torch.int32 and q.is_contiguous()
        found: Tensor = operator.score_matrix(one(q), one(k), one(weights), starts, ends)
        return found[0]

    def bwd(q: Tensor, weights: Tensor, k: Tensor, indices: Tensor, grad: Tensor) -> tuple[Tensor, ...]:
        assert indices.shape == grad.shape == (len(q), indices.shape[-1])
        found = operator.gradients(one(q), one(weights), one(k), one(indices), one(grad))
        return tuple(tensor[0] for tensor in found)

    def lighting_indexer(q: Tensor, k: Tensor, weights: Tensor, starts: Tensor, ends: Tensor, topk: int) -> Any:
        scores, indices = operator.best(one(fwd(q, k, weights, starts, ends)), starts, ends, min(topk, len(k)))
        return scores[0].flip(-1), indices[0].flip(-1)

    modules: dict[str, dict[str, Any]] = {
        "tilelang_indexer_fwd": {"indexer_fwd_interface": fwd},
        "tilelang_indexer_bwd": {"indexer_bwd_interface": bwd},
        "indexer": {"lighting_indexer": lighting_indexer},
    }
    install(monkeypatch, MEGATRON_KERNELS, modules)


def problem_of(spec: Spec, layout: str, **numbers: int) -> Problem:
    spec = spec.model_copy(update={"layout": layout, "width": "min"})
    return Problem(spec, Shape.of(spec, **numbers), "cpu")


def wrong(who: str, problem: Problem, answers: Answers) -> list[str]:
    tasks = RIVALS[who].tasks(problem, answers)
    assert [*tasks] == TASKS
    return [found for task in TASKS if (found := disagreement(task, tasks[task](), problem, answers))]


@pytest.mark.parametrize("batch", [1, 2])
def test_nemo_agrees(nemo: None, spec: Spec, plain_package: Callable[[str], Package], batch: int) -> None:
    problem = problem_of(spec, "SBHD", batch=batch, length=70)
    assert not wrong("nemo", problem, Answers(plain_package("SBHD"), problem))


@pytest.mark.parametrize(("layout", "offset"), [("SBHD", 0), ("BSHD", 99)])
def test_megatron_agrees(
    megatron: None, spec: Spec, plain_package: Callable[[str], Package], layout: str, offset: int
) -> None:
    problem = problem_of(spec, layout, length=70, offset=offset)
    assert not wrong("megatron", problem, Answers(plain_package(layout), problem))


@pytest.mark.parametrize(
    ("who", "layout", "numbers", "reason"),
    [
        ("nemo", "BSHD", {}, "SBHD alone"),
        ("nemo", "SBHD", {"offset": 4}, "position 0"),
        ("megatron", "SBHD", {"batch": 2}, "one sequence alone"),
    ],
)
def test_they_refuse(
    nemo: None, megatron: None, spec: Spec, answers: Answers, who: str, layout: str, numbers: Any, reason: str
) -> None:
    with pytest.raises(Unfit, match=reason):
        RIVALS[who].tasks(problem_of(spec, layout, length=8, **numbers), answers)


def test_flashinfer_agrees(monkeypatch: pytest.MonkeyPatch, spec: Spec, answers: Answers) -> None:
    def top_k(rows: Tensor, k: int, **options: Any) -> tuple[Tensor, Tensor]:
        assert options == {"sorted": True, "deterministic": True, "tie_break": 1}
        found = rows.topk(k)
        return found.values, found.indices

    module = ModuleType("flashinfer")
    module.__spec__ = ModuleSpec("flashinfer", None)
    vars(module)["top_k"] = top_k
    monkeypatch.setitem(sys.modules, "flashinfer", module)
    with pytest.raises(Unfit, match="runs on a GPU alone"):
        RIVALS["flashinfer"].tasks(answers.problem, answers)
    monkeypatch.setattr("v4gen.run.rivals.require", lambda condition, otherwise: None)
    select = RIVALS["flashinfer"].tasks(answers.problem, answers)["select"]
    assert not disagreement("select", select(), answers.problem, answers)


def test_a_module_is_loaded_without_its_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = tmp_path / "framework" / "deep" / "kernels"
    kernels.mkdir(parents=True)
    (tmp_path / "framework" / "__init__.py").write_text("raise ImportError('half of the world is missing')\n")
    (kernels / "one.py").write_text("from framework.shared import answer\nfrom .two import other\n")
    (kernels / "two.py").write_text("other = 7\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    try:
        (module,) = borrowed("framework.deep.kernels", ("one",), {"framework.shared": {"answer": 42}})
        assert (module.answer, module.other) == (42, 7)
    finally:
        for name in set(sys.modules) - before:
            del sys.modules[name]
    with pytest.raises(Unfit, match="absent is not installed"):
        borrowed("absent.kernels", ("one",), {})
