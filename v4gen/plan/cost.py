"""Costs by formula: floating-point operations and bytes, in plain integers.

Operations are those of the matrix products, two (a product and a sum) for each pair of elements: of q·k over the pairs
of query and visible key in forward; of q·k, (g·w·relu')ᵀ·k and (g·w·relu')·q over the selected pairs in backward. The
weighted sum over heads is 1/D of them, and not counted, as is usual.

Bytes are those that a call must move between memory and chip, whoever runs it: each element of its inputs read once,
and each of its outputs written once. Keys that are read again by other queries, and sums that are added to again, are
the business of caches, and scores that are only selected from need never be in memory. q, k, dq are of `element` bytes,
dk too where it leaves through autograd, else float32; weights, scores, their gradients and dw are float32, indices
int32. `queries`, `keys` and `columns` count over the whole batch.
"""

from functools import cache

SCORE_BYTES = WEIGHT_BYTES = 4  # float32
INDEX_BYTES = 4  # int32
# What selection by sorting holds beside each score: its integer key, and the sorted keys and indices that `torch.sort`
# returns (int32 and int64).
SORTING_BYTES = 4 + 4 + 8


@cache
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


def scores_bytes(heads: int, dim: int, queries: int, keys: int, scores: int, element: int) -> int:
    """Bytes of q, k and weights read, and of `scores` float32 scores written."""
    return _input_bytes(heads, dim, queries, keys, element) + SCORE_BYTES * scores


def selection_bytes(pairs: int, columns: int) -> int:
    """Bytes of the visible scores read, and of a score and an index written for each column of the result."""
    return SCORE_BYTES * pairs + (SCORE_BYTES + INDEX_BYTES) * columns


def forward_bytes(heads: int, dim: int, queries: int, keys: int, columns: int, element: int) -> int:
    """Bytes of q, k and weights read, and of a score and an index written for each column of the result."""
    return _input_bytes(heads, dim, queries, keys, element) + (SCORE_BYTES + INDEX_BYTES) * columns


def backward_bytes(
    heads: int, dim: int, queries: int, keys: int, columns: int, element: int, dk_element: int = SCORE_BYTES
) -> int:
    """Bytes of q, k, weights, indices and their gradients read, and of dq, dw and dk written."""
    written = queries * heads * (dim * element + WEIGHT_BYTES) + keys * dim * dk_element
    return _input_bytes(heads, dim, queries, keys, element) + (SCORE_BYTES + INDEX_BYTES) * columns + written


def _input_bytes(heads: int, dim: int, queries: int, keys: int, element: int) -> int:
    """Bytes of q, k and weights."""
    return queries * heads * (dim * element + WEIGHT_BYTES) + keys * dim * element
