"""Costs by formula: floating-point operations and bytes, in plain integers."""

# What selection by sorting holds for each score: the score, its integer key, and the sorted keys and indices that
# `torch.sort` returns (int32 and int64).
SELECTION_BYTES_PER_SCORE = 4 + 4 + 4 + 8


def visible_pairs(queries: int, keys: int, ratio: int, offset: int = 0) -> int:
    """Pairs of query and key that the causal mask lets through: Σ_t min((offset + t + 1) // ratio, keys)."""
    return sum(min((offset + t + 1) // ratio, keys) for t in range(queries))


def scores_flops(heads: int, dim: int, pairs: int) -> int:
    """Operations of the products q·k over `pairs` pairs; the weighted head sum is not counted, as is usual."""
    return 2 * heads * dim * pairs


def backward_flops(heads: int, dim: int, pairs: int) -> int:
    """Operations of the backward's three products over `pairs` selected pairs."""
    return 3 * 2 * heads * dim * pairs
