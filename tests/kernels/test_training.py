"""The example trains: as a script, and step by step as float64 would, eagerly and inside torch.compile."""

import importlib
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

pytestmark = pytest.mark.xdist_group("training")

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_indexer.py"
COMMANDS = re.findall(r"^    \$ (.*)", EXAMPLE.read_text(encoding="utf-8"), re.MULTILINE)
VENDOR, *SCRIPTS = COMMANDS
STEPS = 20

UNIT = 2.0**-24  # of float32
BF16_UNIT = 2.0**-8


def run(command: str, folder: Path) -> str:
    """What `command` prints, in a shell that finds this environment's python and v4gen."""
    environment = os.environ | {"PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))}
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"$ {command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that has the example and the package it wants, vendored as its docstring says."""
    project = tmp_path_factory.mktemp("project")
    shutil.copy(EXAMPLE, project)
    run(VENDOR, project)
    return project


@pytest.fixture(scope="module")
def example(folder: Path) -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield importlib.import_module("train_indexer")
        for name in [name for name in sys.modules if name.split(".")[0] in ("train_indexer", "indexers")]:
            patch.delitem(sys.modules, name)


def test_the_example_runs_as_its_docstring_says(folder: Path) -> None:
    losses = {
        command.split("#")[0].strip(): [float(loss) for loss in re.findall(r"loss (\S+)", run(command, folder))]
        for command in SCRIPTS
    }
    assert len(losses) == 3
    for curve in losses.values():
        assert len(curve) == STEPS
        assert curve[-1] < curve[0] / 2
    assert losses["python train_indexer.py"] == losses["python train_indexer.py --compile"]


def gamma(terms: float) -> float:
    """Relative error of a float32 sum of `terms` terms, in any order (Higham, Accuracy and Stability, 4.2)."""
    return terms * UNIT / (1 - terms * UNIT)


@dataclass(frozen=True)
class Step:
    """A step in float64 on the inputs that the kernels get, and how far from it a right one may be.

    `scores` [B, S, K] by rank, `loss`, and the gradients of the layer's parameters in order.
    """

    scores: Tensor
    loss: Tensor
    gradients: tuple[Tensor, ...]
    scores_bound: Tensor
    loss_bound: Tensor
    gradient_bounds: tuple[Tensor, ...]


def exact_step(example: ModuleType, layer: Any, hidden: Tensor, indices: Tensor) -> Step:
    """The step of `layer` on `hidden` with the package's reference, its gradients at the selection `indices`.

    What the kernels selected is judged by `scores`: sorting does not enlarge the largest error of a row.
    """
    reference = importlib.import_module("indexers.tiny.reference")
    q, k, weights = (t.detach() for t in layer.project(hidden))
    rounded = [q.bfloat16().double(), k.bfloat16().double(), weights.double()]
    exact = deepcopy(layer).double()
    # Values as the kernels get them, gradients as if nothing had been rounded: as autograd has it for `bfloat16()`.
    inputs = [p + (r - p).detach() for p, r in zip(exact.project(hidden.double()), rounded, strict=True)]

    attention = example.main_attention(hidden).double()
    void = indices < 0
    at = indices.clamp(min=0).long()
    scores = reference.reference_scores(*inputs).gather(-1, at).masked_fill(void, -torch.inf)
    loss = example.divergence(scores, indices, attention)
    wanted = [*inputs, scores, *exact.parameters()]
    dq, dk, dw, g, *gradients = torch.autograd.grad(loss, wanted)

    # Scores: D + H + 2 roundings of sums of |w| |q·k| terms, which the reference gives for absolute values.
    magnitude = reference.reference_scores(*(t.abs() for t in rounded))
    score_error = gamma(example.DIM + example.HEADS + 2) * magnitude.clamp(min=0).amax(-1, keepdim=True)

    # log p = s - m - log Σ exp(s - m): 2-Lipschitz in the scores; in float32, with every |s| ≤ M and K of them, one
    # rounding of s - m and of each of the last two differences (at most 2 M + log K each), exp of an argument that is
    # off by 2 M roundings and two of its own, a sum of K terms, and a logarithm of at most log K.
    width = indices.shape[-1]
    largest = scores.masked_fill(void, 0).abs().amax(-1, keepdim=True)
    log_p_error = 2 * score_error + UNIT * (8 * largest + width + 3 * math.log(width) + 2)

    # loss = mean over queries of Σ t (log t - log p); t is normalised in float32, by a sum of K terms.
    first = example.RATIO - 1
    rows = void[:, first:, 0].numel()
    p = scores.softmax(-1).nan_to_num()
    target = attention.gather(-1, at).masked_fill(void, 0)
    target = target / target.sum(-1, keepdim=True).clamp(min=1e-30)
    terms = target * (2 + target.clamp(min=1e-30).log().abs() + p.clamp(min=1e-30).log().abs())
    loss_error = (target * log_p_error + gamma(rows * width + width + 6) * terms)[:, first:].sum() / rows

    # g = (p Σt - t) / rows, where p = exp(log p) and its own roundings.
    g_error = (p * log_p_error.expm1() + gamma(2 * width + 8) * (p + target)) / rows
    g_error = g_error.masked_fill(void, 0)
    g_error[:, :first] = 0

    sizes = [t.abs() for t in (dq, dk, dw)]
    errors = operator_errors(example, rounded, indices, g.masked_fill(void, 0).abs(), g_error)
    bf16 = (BF16_UNIT, BF16_UNIT, 0)  # dq and dk are rounded to it
    errors = [error + unit * (size + error) for error, unit, size in zip(errors, bf16, sizes, strict=True)]
    # The parameters' gradients are linear in dq, dk and dw, with factors of the hidden state: what `project` passes
    # back at its absolute value bounds what passes back at all, and is summed over every token and window.
    carried = exact.project(hidden.double().abs())
    passed = torch.autograd.grad(carried, list(exact.parameters()), errors, retain_graph=True)
    summed = torch.autograd.grad(carried, list(exact.parameters()), sizes)
    rounding = gamma(hidden.shape[0] * hidden.shape[1] + example.RATIO + 3)
    bounds = tuple(error + rounding * (size + error) for error, size in zip(passed, summed, strict=True))
    ranked = reference.reference_indexer(*inputs)[0].detach()
    return Step(ranked, loss.detach(), tuple(gradients), score_error, loss_error, bounds)


def operator_errors(
    example: ModuleType, rounded: list[Tensor], indices: Tensor, g: Tensor, g_error: Tensor
) -> list[Tensor]:
    """Bounds for float32 dq, dk and dw, of an upstream gradient of magnitude `g` that is off by `g_error` [B, S, K].

    A product g w m is off by what g is off, and as a whole where the gate m is undecided because |q·k| is within its
    own error. dq and dk are sums of at most S H such products with keys or queries; dw is a sum of K terms g relu(q·k).
    """
    q, k, w = (t.transpose(0, 1) for t in rounded)
    void = indices < 0
    at = torch.arange(k.shape[0])[:, None, None].expand_as(indices), indices.clamp(min=0).long()
    keys = k[at].masked_fill(void[..., None], 0)  # [B, S, K, D]
    dots = torch.einsum("bshd,bsjd->bshj", q, keys)
    magnitude = torch.einsum("bshd,bsjd->bshj", q.abs(), keys.abs())
    undecided = dots.abs() <= gamma(example.DIM) * magnitude
    g, g_error = g[:, :, None], g_error[:, :, None]

    rounding = gamma(q.shape[1] * example.HEADS + 3)
    products = w.abs()[..., None] * ((dots > 0) | undecided) * (g_error + (undecided + rounding) * (g + g_error))
    dq = torch.einsum("bshj,bsjd->bshd", products, keys.abs())
    dk = torch.zeros_like(k).index_put_(at, torch.einsum("bshj,bshd->bsjd", products, q.abs()), accumulate=True)
    dw = ((g_error + gamma(example.DIM + indices.shape[-1] + 2) * (g + g_error)) * magnitude).sum(-1)
    return [t.transpose(0, 1) for t in (dq, dk, dw)]


@pytest.mark.parametrize("optimizer_type", [torch.optim.SGD, torch.optim.AdamW])
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_every_step_is_as_float64_would_have_it(
    example: ModuleType, compiled: bool, optimizer_type: type[torch.optim.SGD | torch.optim.AdamW]
) -> None:
    """Each step starts at the parameters to which the reference's gradients led.

    Left alone, the runs would part by more than any useful bound: AdamW divides a gradient by its own size, so that
    one near zero moves its parameter by the whole learning rate in the direction of an error, and a selection is not
    continuous in the scores.
    """
    torch.manual_seed(0)
    layer, hidden = example.IndexerLayer(), torch.randn(50, 2, example.WIDTH)
    attention = example.main_attention(hidden)
    optimizer = optimizer_type(layer.parameters(), lr=1e-2)
    indexer = example.lightning_indexer
    if compiled:
        indexer = torch.compile(indexer, fullgraph=True)
    for _ in range(STEPS):
        scores, indices = layer(hidden, indexer)
        loss = example.divergence(scores, indices, attention)
        gradients = torch.autograd.grad(loss, list(layer.parameters()))
        due = exact_step(example, layer, hidden, indices)
        seen = indices >= 0
        assert ((scores.double() - due.scores).abs() <= due.scores_bound)[seen].all()
        assert (loss.double() - due.loss).abs() <= due.loss_bound
        for found, exact, bound in zip(gradients, due.gradients, due.gradient_bounds, strict=True):
            assert ((found.double() - exact).abs() <= bound).all()
        for parameter, exact in zip(layer.parameters(), due.gradients, strict=True):
            parameter.grad = exact.float()
        optimizer.step()
