"""Costs by formula: floating-point operations and bytes, in plain integers."""

SCORE_BYTES = 4  # float32
# What selection by sorting holds beside each score: its integer key, and the sorted keys and indices that `torch.sort`
# returns (int32 and int64).
SORTING_BYTES = 4 + 4 + 8


def visible_pairs(queries: int, keys: int, ratio: int, offset: int = 0) -> int:
    """Pairs of query and key that the causal mask lets through: Σ_t min((offset + t + 1) // ratio, keys)."""
    return sum(min((offset + t + 1) // ratio, keys) for t in range(queries))


def scores_flops(heads: int, dim: int, pairs: int) -> int:
    """Operations of the products q·k over `pairs` pairs; the weighted head sum is not counted, as is usual."""
    return 2 * heads * dim * pairs


def backward_flops(heads: int, dim: int, pairs: int) -> int:
    """Operations of the backward's three products over `pairs` selected pairs."""
    return 3 * 2 * heads * dim * pairs


def selected_pairs(queries: int, keys: int, ratio: int, topk: int) -> int:
    """Pairs of query and key that are selected under the causal mask: Σ_t min((t + 1) // ratio, keys, topk)."""
    return visible_pairs(queries, min(keys, topk), ratio)


def scores_bytes(heads: int, dim: int, queries: int, keys: int, pairs: int, element: int) -> int:
    """Bytes of q, k and weights read once, and of a float32 score written for each visible pair."""
    return (queries * heads * dim + keys * dim) * element + 4 * queries * heads + 4 * pairs


def selection_bytes(pairs: int, columns: int) -> int:
    """Bytes of the visible scores read once, and of a score and an index written for each column of the result."""
    return 4 * pairs + 8 * columns


def backward_bytes(heads: int, dim: int, queries: int, keys: int, columns: int, element: int) -> int:
    """Bytes of q, k, weights, indices and their gradients read once, and of dq, dw and a float32 dk written once."""
    queries_bytes = 2 * queries * heads * (dim * element + 4)
    return queries_bytes + keys * dim * (element + 4) + 8 * columns
