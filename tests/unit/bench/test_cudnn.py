"""cuDNN's front end, its kernels replaced by plain torch: what goes in and comes out is laid out as it should be."""

import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from v4gen.read.spec import Spec
from v4gen.run.agreement import disagreement
from v4gen.run.answers import Answers
from v4gen.run.contest import Problem, Shape, Unfit
from v4gen.run.package import Package
from v4gen.run.rivals import RIVALS

TASKS = ["scores", "select", "forward", "backward", "forward+backward"]


@pytest.fixture
def cudnn(monkeypatch: pytest.MonkeyPatch, operator: SimpleNamespace) -> None:
    """Its modules, with the arguments that are used of their functions."""

    def scores(q: Tensor, k: Tensor, w: Tensor, *, ratio: int, q_causal_offsets: Tensor | None) -> dict[str, Tensor]:
        assert q_causal_offsets is None or q_causal_offsets.shape == q.shape[:1]
        assert all(tensor.stride(0) == tensor[0].numel() for tensor in (q, k, w))
        offset = 0 if q_causal_offsets is None else int(q_causal_offsets[0])
        ranges = operator.causal(q.shape[1], k.shape[1], ratio, "cpu", offset)
        return {"scores": operator.score_matrix(q, k.squeeze(2), w, *ranges)}

    def top_k(rows: Tensor, lengths: Tensor, top_k: int, *, deterministic: bool) -> dict[str, Tensor]:
        hidden = torch.arange(rows.shape[1]) >= lengths[:, None]
        values, indices = operator.best(rows.masked_fill(hidden, -torch.inf), None, None, top_k)
        return {"values": values, "indices": indices}

    def backward(*sizes: int, topk_indices_global: bool) -> SimpleNamespace:
        def gemm_only(
            q: Tensor, w: Tensor, k: Tensor, dq: Tensor, dw: Tensor, dk: Tensor, grad: Tensor, indices: Tensor
        ) -> None:
            assert (*q.shape[:2], k.shape[1], *q.shape[2:], indices.shape[2]) == sizes
            assert w.dtype == dw.dtype == torch.bfloat16
            found = operator.gradients(q, w, k, indices, grad)
            dq.copy_(found[0])
            dw.copy_(found[1])
            dk.add_(found[2])

        return SimpleNamespace(gemm_only=gemm_only)

    package = "cudnn.deepseek_sparse_attention"
    contents: dict[str, dict[str, Any]] = {
        "cutlass": {},
        "cudnn": {},
        package: {"indexer_forward_wrapper": scores, "indexer_top_k_wrapper": top_k},
        f"{package}.indexer_backward.indexer_backward_sm90": {"indexer_backward_sm90": backward},
    }
    for name, members in contents.items():
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr("v4gen.run.rivals._on_hopper", lambda device: True)


@pytest.mark.parametrize("layout", ["SBHD", "BSHD"])
@pytest.mark.parametrize(("batch", "offset"), [(1, 0), (2, 0), (2, 99)])
def test_it_agrees(
    cudnn: None, spec: Spec, plain_package: Callable[[str], Package], layout: str, batch: int, offset: int
) -> None:
    spec = spec.model_copy(update={"heads": 64, "dim": 128, "topk": 128, "layout": layout})
    problem = Problem(spec, Shape.of(spec, batch=batch, length=70, ratio=1, offset=offset), "cpu")
    answers = Answers(plain_package(layout), problem)
    tasks = RIVALS["cudnn"].tasks(problem, answers)
    assert [*tasks] == TASKS
    assert not [wrong for task in TASKS if (wrong := disagreement(task, tasks[task](), problem, answers))]


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        ({"dim": 64}, "of dim 128"),
        ({"dtype": "float16"}, "bfloat16"),
        ({"heads": 40}, "16, 32 or 64 heads"),
        ({"topk": 4096}, "at most 2048 keys"),
    ],
)
def test_it_refuses(cudnn: None, spec: Spec, answers: Answers, numbers: dict[str, Any], reason: str) -> None:
    spec = spec.model_copy(update={"heads": 64, "dim": 128} | numbers)
    problem = Problem(spec, Shape.of(spec, length=8), "cpu")
    with pytest.raises(Unfit, match=reason):
        RIVALS["cudnn"].tasks(problem, answers)


def test_it_has_no_backward_of_few_heads(cudnn: None, spec: Spec, plain_package: Callable[[str], Package]) -> None:
    spec = spec.model_copy(update={"heads": 32, "dim": 128, "topk": 128})
    problem = Problem(spec, Shape.of(spec, length=8), "cpu")
    assert "backward" not in RIVALS["cudnn"].tasks(problem, Answers(plain_package("BSHD"), problem))
