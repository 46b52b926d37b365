"""The two golden tables: integer inputs from a hash, and the sums that a right implementation gives.

All values are small integers, exact in bfloat16, float16 and float32, so every number must be met exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod


@dataclass(frozen=True)
class Golden:
    """One table: the problem's sizes and every number expected of it.

    The `wrong_*` numbers are what three well-known mistakes give on the same inputs; they show that the table
    tells right from wrong.
    """

    name: str
    batch: int
    queries: int
    ratio: int
    heads: int
    dim: int
    topk: int
    keys: int
    visible_pairs: int
    selected: int
    sum_scores: int
    sum_squared_scores: int
    sum_selected: int
    sum_indices: int
    sum_dq: int
    sum_abs_dq: int
    sum_dk: int
    sum_abs_dk: int
    sum_dw: int
    sum_abs_dw: int
    last_indices: tuple[int, ...]
    last_scores: tuple[int, ...]
    wrong_bound_sum_scores: int
    wrong_relu_sum_scores: int
    wrong_mask_sum_abs_dq: int


G1 = Golden(
    name="G1",
    batch=1,
    queries=13,
    ratio=4,
    heads=4,
    dim=32,
    topk=2,
    keys=3,
    visible_pairs=18,
    selected=16,
    sum_scores=84,
    sum_squared_scores=19322,
    sum_selected=92,
    sum_indices=7,
    sum_dq=-23,
    sum_abs_dq=695,
    sum_dk=80,
    sum_abs_dk=406,
    sum_dw=61,
    sum_abs_dw=133,
    last_indices=(0, 1),
    last_scores=(0, -4),
    wrong_bound_sum_scores=69,
    wrong_relu_sum_scores=135,
    wrong_mask_sum_abs_dq=794,
)

G2 = Golden(
    name="G2",
    batch=2,
    queries=70,
    ratio=4,
    heads=8,
    dim=64,
    topk=8,
    keys=17,
    visible_pairs=1190,
    selected=848,
    sum_scores=2628,
    sum_squared_scores=5149366,
    sum_selected=17497,
    sum_indices=4022,
    sum_dq=812,
    sum_abs_dq=174556,
    sum_dk=-532,
    sum_abs_dk=37598,
    sum_dw=-428,
    sum_abs_dw=15512,
    last_indices=(0, 13, 3, 8, 6, 10, 7, 15),
    last_scores=(47, 35, 31, 22, 11, -1, -3, -10),
    wrong_bound_sum_scores=2656,
    wrong_relu_sum_scores=-1844,
    wrong_mask_sum_abs_dq=179401,
)

GOLDEN_TABLES = (G1, G2)


def hashed(index: int, salt: int) -> int:
    """A 32-bit hash of an element's flat C-order index and the tensor's salt."""
    x = (index * 2654435761 + salt * 40503) & 0xFFFFFFFF
    x ^= x >> 15
    x = (x * 2246822519) & 0xFFFFFFFF
    return x ^ (x >> 13)


def _draw(shape: tuple[int, ...], salt: int, values: int, lowest: int) -> list[int]:
    return [hashed(index, salt) % values + lowest for index in range(prod(shape))]


def golden_inputs(table: Golden) -> tuple[list[int], list[int], list[int]]:
    """q [B,S,H,D] in -2..2, k [B,N,D] in -2..2 and weights [B,S,H] in -3..3, each flat in C order."""
    q = _draw((table.batch, table.queries, table.heads, table.dim), salt=1, values=5, lowest=-2)
    k = _draw((table.batch, table.keys, table.dim), salt=2, values=5, lowest=-2)
    weights = _draw((table.batch, table.queries, table.heads), salt=3, values=7, lowest=-3)
    return q, k, weights


def golden_gradient(query: int, key: int) -> int:
    """The upstream gradient that query `query` sends to its score with key `key`, in every sample."""
    return (query + 2 * key) % 3 - 1
