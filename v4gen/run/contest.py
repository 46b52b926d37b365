"""What is timed: shapes, and random inputs of them."""

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from v4gen.plan.cost import visible_pairs

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from v4gen.read.spec import Spec

# What each task returns, whoever runs it (`kernel`, the package's own, nothing; `reproducible backward` as `backward`):
#   scores    [B, S, N] float32, −inf out of sight
#   select    scores and indices [B, S, K] of the best columns of `Answers.matrix`, −inf in a column without a key
#   forward   the same, from q, k and weights
#   backward  dq, dw and dk, in the layout of q, weights and k
#   forward+backward   forward's scores and indices, then backward's gradients for `Problem.row_grad`, dk in k's
#                      dtype
Tasks = Mapping[str, Callable[[], Any]]

RANGES = {
    "batch": (1, 1 << 20),
    "length": (1, 1 << 30),
    "offset": (0, 1 << 30),  # so that a position is an int32
    "ratio": (1, 1 << 30),
    "topk": (1, 4096),
}
DRAWN_LENGTHS = (4096, 65536)


class Unfit(Exception):
    """A contestant cannot run here: it is not installed, or does not take the shape. The message says why."""


def require(condition: bool, otherwise: str) -> None:
    """Raise Unfit, with `otherwise` as the reason, unless the condition holds."""
    if not condition:
        raise Unfit(otherwise)


@dataclass(frozen=True)
class Shape:
    """`batch` sequences of `length` queries, the first at position `offset`; compress ratio and top-k of the run.

    Raises ValueError when a number is out of range.
    """

    batch: int
    length: int
    offset: int
    ratio: int
    topk: int

    def __post_init__(self) -> None:
        for name, number in asdict(self).items():
            least, most = RANGES[name]
            if not least <= number <= most:
                raise ValueError(f"`{name}` is {number}, expected {least} … {most}")

    @classmethod
    def of(cls, spec: "Spec", **given: int) -> "Shape":
        """The given numbers; one sequence at position 0, the spec's ratio and top-k where they are not given."""
        return cls(**{"batch": 1, "offset": 0, "ratio": spec.compress_ratio, "topk": spec.topk} | given)

    def __str__(self) -> str:
        offset = f" from {self.offset}" if self.offset else ""
        return f"B={self.batch} S={self.length}{offset} N={self.keys} r={self.ratio} K={self.topk}"

    @property
    def keys(self) -> int:
        return (self.offset + self.length) // self.ratio

    @property
    def pairs(self) -> int:
        """Pairs of query and visible key."""
        return self.batch * visible_pairs(self.length, self.keys, self.ratio, self.offset)

    @property
    def selected(self) -> int:
        """Pairs of query and selected key."""
        return self.batch * visible_pairs(self.length, min(self.topk, self.keys), self.ratio, self.offset)

    def as_data(self) -> dict[str, int]:
        """JSON-ready data, keys in a fixed order."""
        return asdict(self) | {"keys": self.keys}


def drawn_shapes(spec: "Spec", number: int, seed: int) -> list[Shape]:
    """Shapes that nobody tuned for: log-uniform lengths, S and N odd and so no multiple of any tile.

    Raises ValueError where no such length has a key.
    """
    longest = (DRAWN_LENGTHS[1] - 1) | 1
    if spec.compress_ratio > longest:
        raise ValueError(f"no length to {longest} has a key with a compress ratio of {spec.compress_ratio}")
    generator = random.Random(seed)
    least, most = map(math.log, DRAWN_LENGTHS)
    shapes: list[Shape] = []
    while len(shapes) < number:
        shape = Shape.of(spec, length=round(math.exp(generator.uniform(least, most))))
        if shape.length % 2 and shape.keys % 2:
            shapes.append(shape)
    return shapes


@dataclass(frozen=True)
class Problem:
    """Random normal inputs of one shape in the spec's layout and dtype, and gradients for the selected scores.

    Raises Unfit where packed tokens are to be a batch.
    """

    spec: "Spec"
    shape: Shape
    device: str

    def __post_init__(self) -> None:
        if self.packed and self.shape.batch > 1:
            raise Unfit("packed tokens (THD) are one batch")

    @property
    def packed(self) -> bool:
        """Whether tensors have no batch dimension."""
        return self.spec.layout == "THD"

    def batch_first(self, tensor: "Tensor") -> "Tensor":
        """A view of a tensor of the spec's layout."""
        if self.packed:
            return tensor.unsqueeze(0)
        return tensor.transpose(0, 1) if self.spec.layout == "SBHD" else tensor

    def in_layout(self, tensor: "Tensor") -> "Tensor":
        """A view in the spec's layout of a tensor that is batch first."""
        if self.packed:
            return tensor.squeeze(0)
        return tensor.transpose(0, 1) if self.spec.layout == "SBHD" else tensor

    def _normal(self, *sizes: int, seed: int) -> "Tensor":
        import torch

        generator = torch.Generator(self.device).manual_seed(seed)
        return torch.randn(sizes, generator=generator, device=self.device)

    def _input(self, tokens: int, *sizes: int, seed: int) -> "Tensor":
        outer = (tokens, self.shape.batch) if self.spec.layout == "SBHD" else (self.shape.batch, tokens)
        tensor = self._normal(*outer, *sizes, seed=seed)
        return tensor.squeeze(0) if self.packed else tensor

    @property
    def dtype(self) -> "torch.dtype":
        import torch

        dtype: torch.dtype = getattr(torch, self.spec.dtype)
        return dtype

    @cached_property
    def q(self) -> "Tensor":
        return self._input(self.shape.length, self.spec.heads, self.spec.dim, seed=1).to(self.dtype)

    @cached_property
    def k(self) -> "Tensor":
        return self._input(self.shape.keys, self.spec.dim, seed=2).to(self.dtype)

    @cached_property
    def weights(self) -> "Tensor":
        return self._input(self.shape.length, self.spec.heads, seed=3)

    @cached_property
    def ends(self) -> "Tensor":
        """One past the last key that each query may see: int32 [S]."""
        import torch

        first = self.shape.offset + 1
        positions = torch.arange(first, first + self.shape.length, device=self.device)
        return (positions // self.shape.ratio).clamp(max=self.shape.keys).int()

    @property
    def width(self) -> int:
        """Columns of the package's result."""
        return min(self.shape.topk, self.shape.keys) if self.spec.width == "min" else self.shape.topk

    @cached_property
    def grad(self) -> "Tensor":
        return self._normal(self.shape.batch, self.shape.length, self.width, seed=4)

    def row_grad(self, width: int) -> "Tensor":
        """Gradients that are equal in a row, so that they do not depend on the order in which it was selected."""
        rows = self._normal(self.shape.batch, self.shape.length, 1, seed=4)
        return rows.expand(-1, -1, width).contiguous()

    @cached_property
    def leaves(self) -> tuple["Tensor", "Tensor", "Tensor"]:
        """q, k and weights, asking for gradients."""
        q, k, weights = (tensor.detach().requires_grad_() for tensor in (self.q, self.k, self.weights))
        return q, k, weights


def scaled_weights(problem: Problem) -> "Tensor":
    """The weights with the spec's constant in them, where other indexers expect every scale."""
    scale = problem.spec.weight_scale
    return problem.weights if scale == 1 else problem.weights * scale
