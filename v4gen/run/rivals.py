"""Who else is timed: other indexers, each as a set of tasks on the package's problem."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from v4gen.run.answers import Answers
from v4gen.run.borrowed import borrowed
from v4gen.run.contest import Problem, Tasks, Unfit, require, scaled_weights
from v4gen.run.plain import torch_tasks

if TYPE_CHECKING:
    from torch import Tensor

NEMO_KERNELS = "nemo_automodel.components.models.deepseek_v4.kernels"
NEMO_MODULES = ("tilelang_indexer_fwd", "tilelang_indexer_bwd", "tilelang_indexer")
NEMO_STAND_INS: Mapping[str, Mapping[str, Any]] = {
    "nemo_automodel.shared": {},
    "nemo_automodel.shared.import_utils": {"UnavailableError": ImportError},
}
MEGATRON_KERNELS = "megatron.core.transformer.experimental_attention_variant.ops"
MEGATRON_MODULES = ("indexer", "tilelang_indexer_fwd", "tilelang_indexer_bwd")
MEGATRON_STAND_INS: Mapping[str, Mapping[str, Any]] = {
    "megatron.core.utils": {"round_up_to_nearest_multiple": lambda value, multiple: -(-value // multiple) * multiple}
}
CUDNN_TOPK = 2048  # the most that its selection takes
CUDNN_KEYS_PER_BLOCK = 128  # its backward gathers so many keys at a time
FLASHINFER_LOWEST_INDEX = 1  # its TopKTieBreak.SMALL


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
    """NeMo AutoModel's hand-written modules, which need torch and tilelang alone."""
    import torch

    shape, spec = problem.shape, problem.spec
    fwd, bwd, indexer = borrowed(NEMO_KERNELS, NEMO_MODULES, NEMO_STAND_INS)
    require(spec.layout == "SBHD", "takes SBHD alone")
    require(not shape.offset, "starts at position 0")
    require(spec.dtype == "bfloat16", "takes bfloat16 alone")
    q, k, weights = problem.q, problem.k, scaled_weights(problem)
    ranges = fwd._make_causal_cu_seqlens(shape.length, shape.keys, shape.ratio, q.device)
    row_grad = cache(lambda: problem.row_grad(min(shape.topk, shape.keys)))

    def forward_and_backward() -> tuple["Tensor", ...]:
        leaves = [tensor.detach().requires_grad_() for tensor in (q, weights, k)]
        scores, indices = indexer.v4_lighting_indexer(leaves[0], leaves[2], leaves[1], shape.ratio, shape.topk)
        return (scores.detach(), indices, *torch.autograd.grad(scores, leaves, row_grad()))

    return {
        "scores": lambda: fwd.batched_indexer_fwd(q, k, weights, *ranges),
        "forward": lambda: indexer.v4_lighting_indexer(q, k, weights, shape.ratio, shape.topk),
        "backward": lambda: bwd.batched_indexer_bwd(q, weights, k, answers.best[1], problem.grad),
        "forward+backward": forward_and_backward,
    }


def megatron_tasks(problem: Problem, answers: Answers) -> Tasks:
    """Megatron-core's TileLang indexer, which takes one sequence and the range of keys that each query sees."""
    import torch

    indexer, fwd, bwd = borrowed(MEGATRON_KERNELS, MEGATRON_MODULES, MEGATRON_STAND_INS)
    require(problem.shape.batch == 1, "takes one sequence alone")
    require(problem.spec.dtype == "bfloat16", "takes bfloat16 alone")
    tensors = (problem.q, problem.k, scaled_weights(problem))
    q, k, weights = (_compact(problem.batch_first(tensor)).squeeze(0) for tensor in tensors)
    ranges = (torch.zeros_like(problem.ends), problem.ends)
    row_grad = cache(lambda: problem.row_grad(min(problem.shape.topk, problem.shape.keys)).squeeze(0))

    def selected(*inputs: "Tensor") -> tuple["Tensor", "Tensor"]:
        scores, indices = indexer.lighting_indexer(*inputs, *ranges, problem.shape.topk)
        return scores, indices

    def gradients(dq: "Tensor", dw: "Tensor", dk: "Tensor") -> tuple["Tensor", ...]:
        return tuple(problem.in_layout(gradient.unsqueeze(0)) for gradient in (dq, dw, dk))

    def backward() -> tuple["Tensor", ...]:
        columns = answers.best[1].squeeze(0), problem.grad.squeeze(0)
        return gradients(*bwd.indexer_bwd_interface(q, weights, k, *columns))

    def forward_and_backward() -> tuple["Tensor", ...]:
        leaves = [tensor.detach().requires_grad_() for tensor in (q, k, weights)]
        scores, indices = selected(*leaves)
        dq, dk, dw = torch.autograd.grad(scores, leaves, row_grad())
        return (scores.detach().unsqueeze(0), indices.unsqueeze(0), *gradients(dq, dw, dk))

    return {
        "scores": lambda: fwd.indexer_fwd_interface(q, k, weights, *ranges).unsqueeze(0),
        "forward": lambda: tuple(tensor.unsqueeze(0) for tensor in selected(q, k, weights)),
        "backward": backward,
        "forward+backward": forward_and_backward,
    }


def flashinfer_tasks(problem: Problem, answers: Answers) -> Tasks:
    """FlashInfer's selection: sorted, the same on every run, and lowest index first among equals, as ours is."""
    if find_spec("flashinfer") is None:
        raise Unfit("flashinfer-python is not installed")
    require(problem.device == "cuda", "runs on a GPU alone")
    require(problem.shape.keys >= problem.shape.topk, "selects no more keys than there are")
    flashinfer = importlib.import_module("flashinfer")

    def select() -> tuple["Tensor", ...]:
        rows, options = answers.matrix.flatten(0, 1), {"sorted": True, "deterministic": True}
        found = flashinfer.top_k(rows, problem.shape.topk, tie_break=FLASHINFER_LOWEST_INDEX, **options)
        return tuple(tensor.unflatten(0, (problem.shape.batch, problem.shape.length)) for tensor in found)

    return {"select": select}


def cudnn_tasks(problem: Problem, answers: Answers) -> Tasks:
    """NVIDIA's indexer for DeepSeek sparse attention, in the front end of cuDNN, on Hopper.

    Selection is its deterministic one, as ours is. Backward is its gradient kernel alone, which like ours is given the
    gradients of the selected scores; its public wrapper fuses the derivative of one loss before it.
    """
    import torch

    shape, spec, heads = problem.shape, problem.spec, problem.spec.heads
    if find_spec("cudnn") is None or find_spec("cutlass") is None:
        raise Unfit("nvidia-cudnn-frontend and nvidia-cutlass-dsl are not installed")
    require(_on_hopper(problem.device), "is timed on Hopper alone")
    require(spec.dtype == "bfloat16" and spec.dim == 128, "takes bfloat16 of dim 128 alone")
    require(heads in (16, 32, 64), "takes 16, 32 or 64 heads")
    require(shape.topk <= CUDNN_TOPK, f"selects at most {CUDNN_TOPK} keys")
    dsa = importlib.import_module("cudnn.deepseek_sparse_attention")
    q, k, weights = (_compact(problem.batch_first(t)) for t in (problem.q, problem.k, scaled_weights(problem)))
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
        backward = _cudnn_backward(problem, q, k, weights)
        tasks["backward"] = lambda: backward(answers.best[1], problem.grad)
        if problem.width == shape.topk:
            tasks["forward+backward"] = _one_after_the_other(tasks["forward"], backward, problem)
    return tasks


def _one_after_the_other(
    forward: Callable[[], Any], backward: Callable[..., tuple["Tensor", ...]], problem: Problem
) -> Callable[[], tuple["Tensor", ...]]:
    """A training step where there is no autograd function; a column without a key holds index -1 as it comes."""
    row_grad = cache(lambda: problem.row_grad(problem.width))

    def step() -> tuple["Tensor", ...]:
        scores, indices = forward()
        return (scores, indices, *backward(indices, row_grad()))

    return step


RIVALS: Mapping[str, Rival] = {
    "cudnn": Rival("nvidia-cudnn-frontend", cudnn_tasks),
    "flashinfer": Rival("flashinfer-python", flashinfer_tasks),
    "megatron": Rival("megatron-core", megatron_tasks),
    "nemo": Rival("nemo_automodel", nemo_tasks),
    "torch": Rival("torch", torch_tasks),
}


def rival_versions(names: Sequence[str]) -> dict[str, str | None]:
    """The version of each rival's distribution, None where it is not installed."""
    return {name: RIVALS[name].version for name in names}


def _on_hopper(device: str) -> bool:
    import torch

    return device == "cuda" and torch.cuda.get_device_capability()[0] == 9


def _compact(tensor: "Tensor") -> "Tensor":
    """Contiguous, the strides of dimensions of one element too: a kernel may ask alignment of them."""
    return tensor.flatten().view(tensor.shape)


def _cudnn_backward(
    problem: Problem, q: "Tensor", k: "Tensor", weights: "Tensor"
) -> Callable[["Tensor", "Tensor"], tuple["Tensor", ...]]:
    """dq and dw in bfloat16, as its kernel stores them, dk in float32; it takes bfloat16 weights alone."""
    import torch

    name = "cudnn.deepseek_sparse_attention.indexer_backward.indexer_backward_sm90"
    make = importlib.import_module(name).indexer_backward_sm90
    (batch, length, heads, dim), keys, rounded = q.shape, k.shape[1], weights.to(q.dtype)
    kernel = make(batch, length, keys, heads, dim, problem.width, topk_indices_global=False).gemm_only

    def backward(indices: "Tensor", grad: "Tensor") -> tuple["Tensor", ...]:
        dq, dw = torch.empty_like(q), torch.empty_like(rounded)
        dk = torch.zeros(k.shape, device=k.device)
        kernel(q, rounded, k, dq, dw, dk, grad, indices)
        return tuple(problem.in_layout(gradient) for gradient in (dq, dw, dk))

    return backward
