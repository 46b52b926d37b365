"""Who else is timed: other indexers, each as a set of tasks on the package's problem."""

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from v4gen.run.contest import Answers, Problem, Tasks, Unfit

if TYPE_CHECKING:
    from torch import Tensor

NEMO_KERNELS = "nemo_automodel.components.models.deepseek_v4.kernels"
TORCH_CHUNK = 512  # queries whose products plain torch holds at once
CUDNN_TOPK = 2048  # the most that its selection takes
CUDNN_KEYS_PER_BLOCK = 128  # its backward gathers so many keys at a time


@dataclass(frozen=True)
class Rival:
    """Its distribution, and the tasks that it takes of a problem; `tasks` raises Unfit where it takes none."""

    distribution: str
    tasks: Callable[[Problem, Answers], Tasks]

    @property
    def version(self) -> str | None:
        try:
            return version(self.distribution)
        except PackageNotFoundError:
            return None


def nemo_tasks(problem: Problem, answers: Answers) -> Tasks:
    """NeMo AutoModel's hand-written modules, loaded by path so that they need torch and tilelang alone."""
    shape, spec = problem.shape, problem.spec
    fwd, bwd, indexer = _nemo_modules()
    _require(spec.layout == "SBHD", "takes SBHD alone")
    _require(not shape.offset, "starts at position 0")
    _require(spec.dtype == "bfloat16", "takes bfloat16 alone")
    q, k, weights = problem.q, problem.k, _scaled_weights(problem)
    ranges = fwd._make_causal_cu_seqlens(shape.length, shape.keys, shape.ratio, q.device)
    return {
        "scores": lambda: fwd.batched_indexer_fwd(q, k, weights, *ranges),
        "forward": lambda: indexer.v4_lighting_indexer(q, k, weights, shape.ratio, shape.topk),
        "backward": lambda: bwd.batched_indexer_bwd(q, weights, k, answers.best[1], problem.grad),
    }


def cudnn_tasks(problem: Problem, answers: Answers) -> Tasks:
    """NVIDIA's indexer for DeepSeek sparse attention, in the front end of cuDNN, on Hopper.

    Selection is its deterministic one, as ours is. Backward is its gradient kernel alone, which like ours is given the
    gradients of the selected scores; its public wrapper fuses the derivative of one loss before it.
    """
    import torch

    shape, spec, heads = problem.shape, problem.spec, problem.spec.heads
    if find_spec("cudnn") is None or find_spec("cutlass") is None:
        raise Unfit("nvidia-cudnn-frontend and nvidia-cutlass-dsl are not installed")
    _require(_on_hopper(problem.device), "is timed on Hopper alone")
    _require(spec.dtype == "bfloat16" and spec.dim == 128, "takes bfloat16 of dim 128 alone")
    _require(heads in (16, 32, 64), "takes 16, 32 or 64 heads")
    _require(shape.topk <= CUDNN_TOPK, f"selects at most {CUDNN_TOPK} keys")
    dsa = importlib.import_module("cudnn.deepseek_sparse_attention")
    q, k, weights = (_compact(problem.batch_first(t)) for t in (problem.q, problem.k, _scaled_weights(problem)))
    offsets = torch.full((shape.batch,), shape.offset, dtype=torch.int32, device=q.device) if shape.offset else None
    lengths = problem.ends.repeat(shape.batch)

    def scores() -> Any:
        wrapper = dsa.indexer_forward_wrapper
        return wrapper(q, k.unsqueeze(2), weights, ratio=shape.ratio, q_causal_offsets=offsets)["scores"]

    def best(matrix: "Tensor") -> tuple["Tensor", "Tensor"]:
        found = dsa.indexer_top_k_wrapper(matrix.flatten(0, 1), lengths, shape.topk, deterministic=True)
        values, indices = (found[name].view(shape.batch, shape.length, -1) for name in ("values", "indices"))
        return values, indices

    tasks = {"scores": scores, "select": lambda: best(answers.matrix), "forward": lambda: best(scores())}
    if heads == 64 and problem.width % CUDNN_KEYS_PER_BLOCK == 0:
        tasks["backward"] = _cudnn_backward(problem, q, k, weights, answers.best[1])
    return tasks


def torch_tasks(problem: Problem, answers: Answers) -> Tasks:
    """Plain torch, a chunk of queries at a time: products, relu, weighted sum, torch.topk."""
    import torch

    shape = problem.shape
    q, k, weights = (problem.batch_first(t) for t in (problem.q, problem.k, _scaled_weights(problem)))
    columns = torch.arange(shape.keys, device=q.device)
    width = min(shape.topk, shape.keys)

    def forward() -> tuple["Tensor", "Tensor"]:
        best = torch.empty(shape.batch, shape.length, width, device=q.device)
        indices = torch.empty(best.shape, dtype=torch.int64, device=q.device)
        for t in range(0, shape.length, TORCH_CHUNK):
            rows = slice(t, t + TORCH_CHUNK)
            products = torch.einsum("bthd,bnd->bthn", q[:, rows], k).relu_().float()
            scores = torch.einsum("bthn,bth->btn", products, weights[:, rows])
            scores.masked_fill_(columns >= problem.ends[rows, None], -torch.inf)
            best[:, rows], indices[:, rows] = scores.topk(width, dim=-1)
        return best, indices

    return {"forward": forward}


RIVALS: Mapping[str, Rival] = {
    "cudnn": Rival("nvidia-cudnn-frontend", cudnn_tasks),
    "nemo": Rival("nemo_automodel", nemo_tasks),
    "torch": Rival("torch", torch_tasks),
}


def rival_versions(names: Sequence[str]) -> dict[str, str | None]:
    """The version of each rival's distribution, None where it is not installed."""
    return {name: RIVALS[name].version for name in names}


def _require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise Unfit(otherwise)


def _on_hopper(device: str) -> bool:
    import torch

    return device == "cuda" and torch.cuda.get_device_capability()[0] == 9


def _scaled_weights(problem: Problem) -> "Tensor":
    """The weights with the spec's constant in them, where other indexers expect every scale."""
    scale = problem.spec.weight_scale
    return problem.weights if scale == 1 else problem.weights * scale


def _compact(tensor: "Tensor") -> "Tensor":
    """Contiguous, the strides of dimensions of one element too: a kernel may ask alignment of them."""
    return tensor.flatten().view(tensor.shape)


def _cudnn_backward(problem: Problem, q: "Tensor", k: "Tensor", weights: "Tensor", indices: "Tensor") -> Any:
    """dq and dw in bfloat16, as its kernel stores them, dk in float32; it takes bfloat16 weights alone."""
    import torch

    name = "cudnn.deepseek_sparse_attention.indexer_backward.indexer_backward_sm90"
    make = importlib.import_module(name).indexer_backward_sm90
    (batch, length, heads, dim), keys, rounded = q.shape, k.shape[1], weights.to(q.dtype)
    kernel = make(batch, length, keys, heads, dim, problem.width, topk_indices_global=False).gemm_only

    def backward() -> tuple["Tensor", ...]:
        dq, dw = torch.empty_like(q), torch.empty_like(rounded)
        dk = torch.zeros(k.shape, device=k.device)
        kernel(q, rounded, k, dq, dw, dk, problem.grad, indices)
        return tuple(problem.in_layout(gradient) for gradient in (dq, dw, dk))

    return backward


def _nemo_modules() -> tuple[ModuleType, ...]:
    """Forward, backward and entry point of an installed nemo_automodel; its own packages are not initialised."""
    if NEMO_KERNELS not in sys.modules:
        found = find_spec("nemo_automodel")
        if found is None or not found.submodule_search_locations:
            raise Unfit("nemo_automodel is not installed")
        path = Path(next(iter(found.submodule_search_locations)))
        parts = NEMO_KERNELS.split(".")
        for depth in range(1, len(parts) + 1):
            parent = ModuleType(".".join(parts[:depth]))
            parent.__path__ = [str(path.joinpath(*parts[1:depth]))]
            sys.modules[parent.__name__] = parent
        for name in ("nemo_automodel.shared", "nemo_automodel.shared.import_utils"):
            sys.modules[name] = ModuleType(name)
        sys.modules["nemo_automodel.shared.import_utils"].UnavailableError = ImportError  # type: ignore[attr-defined]
    names = ("tilelang_indexer_fwd", "tilelang_indexer_bwd", "tilelang_indexer")
    return tuple(importlib.import_module(f"{NEMO_KERNELS}.{name}") for name in names)
