"""Who is timed: the package and its rivals, each as a set of tasks on one problem."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from v4gen.plan.cost import visible_pairs
from v4gen.run.package import Package

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from v4gen.read.spec import Spec

Tasks = Mapping[str, Callable[[], Any]]

NEMO_KERNELS = "nemo_automodel.components.models.deepseek_v4.kernels"
TORCH_CHUNK = 512  # queries whose products plain torch holds at once


@dataclass(frozen=True)
class Shape:
    """`batch` sequences of `queries` tokens, the first at position `offset`; ratio and top-k of the run."""

    batch: int
    queries: int
    offset: int
    ratio: int
    topk: int

    @property
    def keys(self) -> int:
        return (self.offset + self.queries) // self.ratio

    @property
    def pairs(self) -> int:
        """Pairs of query and visible key."""
        return self.batch * visible_pairs(self.queries, self.keys, self.ratio, self.offset)

    @property
    def selected(self) -> int:
        """Pairs of query and selected key."""
        return self.batch * visible_pairs(self.queries, min(self.topk, self.keys), self.ratio, self.offset)


@dataclass(frozen=True)
class Problem:
    """Random normal inputs of one shape in the spec's layout and dtype, and gradients for the selected scores."""

    spec: "Spec"
    shape: Shape
    device: str

    def _normal(self, *sizes: int, seed: int) -> "Tensor":
        import torch

        generator = torch.Generator(self.device).manual_seed(seed)
        return torch.randn(sizes, generator=generator, device=self.device)

    def _outer(self, sequence: int) -> tuple[int, int]:
        return (sequence, self.shape.batch) if self.spec.layout == "SBHD" else (self.shape.batch, sequence)

    @property
    def dtype(self) -> "torch.dtype":
        import torch

        dtype: torch.dtype = getattr(torch, self.spec.dtype)
        return dtype

    @cached_property
    def q(self) -> "Tensor":
        return self._normal(*self._outer(self.shape.queries), self.spec.heads, self.spec.dim, seed=1).to(self.dtype)

    @cached_property
    def k(self) -> "Tensor":
        return self._normal(*self._outer(self.shape.keys), self.spec.dim, seed=2).to(self.dtype)

    @cached_property
    def weights(self) -> "Tensor":
        return self._normal(*self._outer(self.shape.queries), self.spec.heads, seed=3)

    @cached_property
    def grad(self) -> "Tensor":
        width = min(self.shape.topk, self.shape.keys) if self.spec.width == "min" else self.shape.topk
        return self._normal(self.shape.batch, self.shape.queries, width, seed=4)


def package_tasks(package: Package, problem: Problem) -> Tasks:
    """The package's scores kernel, selection, whole forward and backward."""
    import torch

    shape, fwd = problem.shape, package.fwd
    q, k, weights = problem.q, problem.k, problem.weights
    inputs = [fwd._runtime.kernel_input(tensor) for tensor in (q, k)]
    inputs.append(fwd._runtime.kernel_input(weights, torch.float32))
    ranges = fwd._make_causal_cu_seqlens(shape.queries, shape.keys, shape.ratio, q.device, shape.offset)
    pitch = -(-shape.keys // 4) * 4
    scores = torch.empty(shape.batch, shape.queries, pitch, device=q.device)
    width = problem.grad.shape[-1]

    def forward() -> Any:
        apply = getattr(package.indexer, "V4IndexerFunction", None) or package.indexer.LightningIndexerFunction
        return apply.apply(q, k, weights, shape.ratio, shape.topk, None, shape.offset)

    indices = forward()[1]
    return {
        "scores": lambda: fwd.write_scores(*inputs, *ranges, scores),
        "select": lambda: package.indexer.tilelang_indexer_topk.select(scores, *ranges, width),
        "forward": forward,
        "backward": lambda: package.bwd.batched_indexer_bwd(q, weights, k, indices, problem.grad),
    }


def nemo_tasks(package: Package, problem: Problem) -> Tasks | None:
    """NeMo AutoModel's hand-written modules, loaded by path so that they need torch and tilelang alone."""
    shape, spec = problem.shape, problem.spec
    modules = _nemo_modules()
    if modules is None or spec.layout != "SBHD" or shape.offset or spec.dtype != "bfloat16":
        return None
    q, k, weights = problem.q, problem.k, problem.weights
    starts, ends = modules["tilelang_indexer_fwd"]._make_causal_cu_seqlens(
        shape.queries, shape.keys, shape.ratio, q.device
    )
    forward = modules["tilelang_indexer"].v4_lighting_indexer
    indices = forward(q, k, weights, shape.ratio, shape.topk)[1]
    return {
        "scores": lambda: modules["tilelang_indexer_fwd"].batched_indexer_fwd(q, k, weights, starts, ends),
        "forward": lambda: forward(q, k, weights, shape.ratio, shape.topk),
        "backward": lambda: modules["tilelang_indexer_bwd"].batched_indexer_bwd(q, weights, k, indices, problem.grad),
    }


def torch_tasks(package: Package, problem: Problem) -> Tasks | None:
    """Plain torch, a chunk of queries at a time: products, relu, weighted sum, torch.topk."""
    import torch

    shape, spec = problem.shape, problem.spec
    sequence_first = spec.layout == "SBHD"
    q, k, weights = (t.transpose(0, 1) if sequence_first else t for t in (problem.q, problem.k, problem.weights))
    ends = (torch.arange(shape.queries, device=q.device) + shape.offset + 1) // shape.ratio
    columns = torch.arange(shape.keys, device=q.device)

    def forward() -> list[Any]:
        chunks = []
        for t in range(0, shape.queries, TORCH_CHUNK):
            rows = slice(t, t + TORCH_CHUNK)
            products = torch.einsum("bthd,bnd->bthn", q[:, rows], k).relu_().float()
            scores = torch.einsum("bthn,bth->btn", products, weights[:, rows])
            scores.masked_fill_(columns >= ends[rows, None], -torch.inf)
            chunks.append(scores.topk(min(shape.topk, shape.keys), dim=-1))
        return chunks

    return {"forward": forward}


RIVALS: Mapping[str, Callable[[Package, Problem], Tasks | None]] = {"nemo": nemo_tasks, "torch": torch_tasks}


def _nemo_modules() -> dict[str, ModuleType] | None:
    """The three kernel modules of an installed nemo_automodel, or None; its own packages are not initialised."""
    import importlib

    if NEMO_KERNELS not in sys.modules:
        found = find_spec("nemo_automodel")
        if found is None or not found.submodule_search_locations:
            return None
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
    return {name: importlib.import_module(f"{NEMO_KERNELS}.{name}") for name in names}
