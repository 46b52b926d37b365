"""Sizes and options against each other, on the CPU path: integers, which must come out exact, and any values.

A greedy covering array picks the specs: every value occurs, and so does every pair of values of two keys, of which
layout and mask count as one. Heads, dim and dtype among themselves are left to chance: they would take 88 sets of
kernels. Specs draw them from a few triples, and packages whose kernels are equal share them.
V4GEN_COVERING_SEED draws another array; the name of a test tells the seed. Compiling takes most of the time: the rows
of two sets of kernels run, those of all with V4GEN_COVERING=all.
"""

import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product

import pytest

from v4gen.read.rules import MASKS
from v4gen.read.spec import Spec
from v4gen.run.case import Case, growing, late, packed
from v4gen.run.checks import measure
from v4gen.run.package import Package
from v4gen.run.subject import Subject

SEED = int(os.environ.get("V4GEN_COVERING_SEED", "0"))
KERNEL_SETS = None if os.environ.get("V4GEN_COVERING") == "all" else 2

LAYOUTS = (*(f"{layout} {mask}" for layout, masks in MASKS.items() for mask in masks), "THD varlen local")
VALUES: Mapping[str, tuple[object, ...]] = {
    "heads": (1, 3, 8, 12, 16, 24, 32, 40, 64, 96, 128),
    "dim": (16, 32, 64, 80, 96, 128, 192, 256),
    "dtype": ("bfloat16", "float16"),
    "topk": (1, 7, 64, 512, 1000, 2048),
    "compress_ratio": (1, 2, 4, 128),
    "layout": LAYOUTS,
    "order": ("score", "index"),
    "width": ("min", "topk"),
}
SIZES = ("heads", "dim", "dtype")
MOST_TOKENS = 200

Row = Mapping[str, object]
Pair = tuple[tuple[str, object], ...]


def kernels(rng: random.Random) -> list[Row]:
    """Heads, dim and dtype of the kernels: every count of heads once, every dim, either dtype by turns."""
    heads, dims = VALUES["heads"], VALUES["dim"]
    drawn = [*rng.sample(dims, len(dims)), *rng.sample(dims, len(heads) - len(dims))]
    dtypes = rng.sample(VALUES["dtype"], 2) * len(heads)
    return [dict(zip(SIZES, sizes, strict=True)) for sizes in zip(heads, drawn, dtypes, strict=False)]


def pairs_of(row: Row) -> set[Pair]:
    return {pair for pair in combinations(row.items(), 2) if not {key for key, _ in pair} <= {*SIZES}}


def pairs_to_cover() -> set[Pair]:
    keys = [pair for pair in combinations(VALUES, 2) if not {*pair} <= {*SIZES}]
    return {((one, a), (other, b)) for one, other in keys for a, b in product(VALUES[one], VALUES[other])}


def covering_array(rng: random.Random) -> list[Row]:
    """Rows until every pair is covered, each the best of some random ones that hold an uncovered pair."""
    missing, sizes = pairs_to_cover(), kernels(rng)
    rows: list[Row] = []
    while missing:
        best = max((candidate(rng, sizes, pair) for pair in rng.choices(sorted(missing, key=repr), k=80)),
                   key=lambda row: len(missing & pairs_of(row)))  # fmt: skip
        rows.append(best)
        missing -= pairs_of(best)
    return sorted(rows, key=lambda row: sizes.index({key: row[key] for key in SIZES}))


def candidate(rng: random.Random, sizes: Sequence[Row], pair: Pair) -> Row:
    """A random row that holds `pair`."""
    held = dict(pair)
    fitting = [row for row in sizes if all(row[key] == value for key, value in held.items() if key in SIZES)]
    others = {key: held.get(key, rng.choice(values)) for key, values in VALUES.items() if key not in SIZES}
    return {**rng.choice(fitting), **others}


ROWS = min((covering_array(random.Random(f"{SEED} {attempt}")) for attempt in range(5)), key=len)


def test_the_array_covers_every_pair_with_few_kernels() -> None:
    assert pairs_to_cover() == set().union(*map(pairs_of, ROWS)) & pairs_to_cover()
    assert len({tuple(row[key] for key in SIZES) for row in ROWS}) <= len(VALUES["heads"])
    assert len(ROWS) <= 100


def spec_of(row: Row) -> Spec:
    layout, mask, *base = str(row["layout"]).split()
    seed = (layout, mask, row["width"]) == ("SBHD", "causal", "min")
    options = {"layout": layout, "mask": mask, "interface": "seed" if seed else "operator"}
    local = {"index_base": base[0]} if base else {}
    return Spec.model_validate({"schema": "v4gen/1", "name": "covered", **row, **options, **local})


def cases(spec: Spec) -> Iterator[Case]:
    """More keys than top-k, few keys with a first query that sees none of several, and given indices."""
    ratio = spec.compress_ratio
    many = late(spec, "more keys than top-k", spec.topk + 3, queries=2)
    few = growing(spec, "few keys", min(2 * ratio + 3, 21), batch=2, keys=3)
    if spec.mask == "ranges":
        many, few = replace(many, ranges="mixed"), replace(few, ranges="mixed")
    if spec.mask == "varlen":
        window = min(ratio, 8)
        lengths = (0, 1, window - 1, window, 2 * window + 1)
        few = packed(spec, "few keys", [(length, length // window) for length in lengths])
        tokens = min(many.queries, MOST_TOKENS)  # a document of many keys has as many tokens, so top-k is small then
        many = packed(spec, many.name, [(1, 1), (tokens, min(many.keys, tokens // ratio))])
    yield replace(many, values="integers")
    yield few
    yield replace(few, name="given indices", values="integers", given="void", gradient="non-finite void")


def rows_to_run() -> list[Row]:
    sets = sorted({kernel_group(row) for row in ROWS})
    drawn = random.Random(SEED).sample(sets, KERNEL_SETS or len(sets))
    return [row for row in ROWS if kernel_group(row) in drawn]


def title(row: Row) -> str:
    return "-".join(map(str, (f"seed {SEED}", *row.values())))


def kernel_group(row: Row) -> str:
    return "-".join(str(row[key]) for key in SIZES)


@pytest.mark.parametrize(
    "row", [pytest.param(row, id=title(row), marks=pytest.mark.xdist_group(kernel_group(row))) for row in rows_to_run()]
)
def test_results_are_right(row: Row, load: Callable[[Spec], Package]) -> None:
    spec = spec_of(row)
    package = load(spec)
    for case in cases(spec):
        found = [found for found in measure(Subject.of(package, spec, case, "cpu")) if not found.passed]
        assert not found, f"{case.name}: {case.description}"
