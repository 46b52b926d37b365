"""Sizes and options against each other: small integer problems, on which every result must be exact.

A greedy covering array picks the specs: every value occurs, and so does every pair of values of two keys with at most
`PAIRS` combinations (heads × dim alone would take 88 specs of two kernels each). V4GEN_COVERING_SEED draws another
array; the name of a test tells the seed.
"""

import os
import random
from collections.abc import Callable, Mapping
from itertools import combinations, product

import pytest
import torch
from torch import Tensor

from v4gen.read.spec import Spec
from v4gen.run import oracle
from v4gen.run.cases import late_offset
from v4gen.run.oracle import Problem
from v4gen.run.package import Package

SEED = int(os.environ.get("V4GEN_COVERING_SEED", "0"))
PAIRS = 24

VALUES: Mapping[str, tuple[object, ...]] = {
    "heads": (1, 3, 8, 12, 16, 24, 32, 40, 64, 96, 128),
    "dim": (16, 32, 64, 80, 96, 128, 192, 256),
    "topk": (1, 7, 64, 512, 1000, 2048),
    "compress_ratio": (1, 2, 4, 128),
    "layout": ("SBHD", "BSHD"),
    "order": ("score", "index"),
    "width": ("min", "topk"),
    "dtype": ("bfloat16", "float16"),
}

Row = Mapping[str, object]


def pairs_to_cover() -> set[tuple[tuple[str, object], ...]]:
    wanted = [pair for pair in combinations(VALUES, 2) if len(VALUES[pair[0]]) * len(VALUES[pair[1]]) <= PAIRS]
    return {((one, a), (other, b)) for one, other in wanted for a, b in product(VALUES[one], VALUES[other])}


def pairs_of(row: Row) -> set[tuple[tuple[str, object], ...]]:
    return set(combinations(row.items(), 2))


def covering_array(rng: random.Random) -> list[Row]:
    """Rows until every pair is covered, each the best of some random ones that hold an uncovered pair."""
    missing = pairs_to_cover()
    rows: list[Row] = []
    while missing:
        seeded = rng.choices(sorted(missing, key=repr), k=60)
        drawn = [{key: rng.choice(values) for key, values in VALUES.items()} | dict(pair) for pair in seeded]
        best = max(drawn, key=lambda row: len(missing & pairs_of(row)))
        rows.append(best)
        missing -= pairs_of(best)
    return rows


ROWS = min((covering_array(random.Random(f"{SEED} {attempt}")) for attempt in range(20)), key=len)


def test_the_array_is_small_and_covers_every_value() -> None:
    assert all({row[key] for row in ROWS} == set(values) for key, values in VALUES.items())
    assert PAIRS <= len(ROWS) <= PAIRS + 4


def spec_of(row: Row) -> Spec:
    seed = row["layout"] == "SBHD" and row["width"] == "min"
    interface = "seed" if seed else "operator"
    return Spec.model_validate({"schema": "v4gen/1", "name": "covered", "interface": interface, **row})


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(map(str, (f"seed {SEED}", *row.values()))))
def test_results_are_exact(row: Row, load: Callable[[Spec], Package]) -> None:
    spec = spec_of(row)
    package = load(spec)
    many = spec.topk + 3  # more keys than are selected
    check(spec, package, queries=3, keys=many, offset=late_offset(many, spec.compress_ratio))
    # few keys, and a first query that sees none of them unless each token has its own
    check(spec, package, queries=4, keys=3, offset=max(spec.compress_ratio - 2, 0))


def check(spec: Spec, package: Package, queries: int, keys: int, offset: int) -> None:
    """Hold scores, selection and gradients of one problem against the integer oracle."""
    generator = torch.Generator().manual_seed(SEED)
    first = 1 if spec.layout == "SBHD" else 0
    half = getattr(torch, spec.dtype)

    def draw(largest: int, *shape: int) -> Tensor:
        return torch.randint(-largest, largest + 1, shape, generator=generator).double()

    drawn = draw(2, 2, queries, spec.heads, spec.dim), draw(2, 2, keys, spec.dim), draw(3, 2, queries, spec.heads)
    problem = Problem(*drawn, ratio=spec.compress_ratio, query_offset=offset)
    q, k, w = (
        values.transpose(0, first).to(dtype).contiguous().requires_grad_()
        for values, dtype in zip(drawn, (half, half, torch.float32), strict=True)
    )

    matrix = package.indexer.LightningIndexer(query_offset=offset).scores(q, k, w)
    exact = oracle.scores(problem)
    same(matrix, exact.float())

    scores, indices = package.indexer.lightning_indexer(q, k, w, query_offset=offset)
    due = oracle.select(exact.float(), problem.visible(), topk=spec.topk, width=spec.width, order=spec.order)
    same(scores, due[0])
    same(indices, due[1])

    upstream = draw(2, *scores.shape).float().masked_fill(indices < 0, torch.nan)
    gradients = oracle.gradients(problem, indices, upstream.double())
    found = torch.autograd.grad(scores, (q, k, w), upstream)
    for gradient, expected, like in zip(found, (gradients.dq, gradients.dk, gradients.dw), (q, k, w), strict=True):
        same(gradient.transpose(0, first), expected.to(like.dtype))


def same(found: Tensor, expected: Tensor) -> None:
    """Equal values and dtype, and no zero of the wrong sign among scores."""
    assert found.dtype == expected.dtype
    assert torch.equal(found, expected)
    if found.dtype == torch.float32 and found.isinf().any():
        assert not ((found == 0) & found.signbit()).any()
