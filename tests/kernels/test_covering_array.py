"""Sizes and options against each other, on the CPU path: integers, which must come out exact, and any values.

A greedy covering array picks the specs: every pair of values of two keys occurs, of which layout and mask count as one.
Nearly every row has kernels of its own, and compiling them takes most of the time: a run takes every twelfth row, from
the one on that V4GEN_COVERING_SEED (0 if not told) says. Twelve seeds in turn run all, as V4GEN_COVERING=all does.
"""

import os
import random
from collections.abc import Callable, Iterator, Mapping
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
SHARES = 1 if os.environ.get("V4GEN_COVERING") == "all" else 12

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
MOST_TOKENS = 200

Row = Mapping[str, object]
Pair = tuple[tuple[str, object], ...]


def pairs_of(row: Row) -> set[Pair]:
    return set(combinations(row.items(), 2))


def pairs_to_cover() -> set[Pair]:
    keys = combinations(VALUES, 2)
    return {((one, a), (other, b)) for one, other in keys for a, b in product(VALUES[one], VALUES[other])}


def covering_array(rng: random.Random) -> list[Row]:
    """Rows until every pair is covered, each the best of some random ones that hold an uncovered pair."""
    missing, rows = pairs_to_cover(), list[Row]()
    while missing:
        held = rng.choices(sorted(missing, key=repr), k=100)
        best = max((candidate(rng, pair) for pair in held), key=lambda row: len(missing & pairs_of(row)))
        rows.append(best)
        missing -= pairs_of(best)
    return rows


def candidate(rng: random.Random, pair: Pair) -> Row:
    """A random row that holds `pair`."""
    held = dict(pair)
    return {key: held.get(key, rng.choice(values)) for key, values in VALUES.items()}


ROWS = covering_array(random.Random(0))


def test_the_array_covers_every_pair_in_few_rows() -> None:
    assert pairs_to_cover() == set().union(*map(pairs_of, ROWS))
    assert len(ROWS) <= 120


def spec_of(row: Row) -> Spec:
    layout, mask, *base = str(row["layout"]).split()
    seed = (layout, mask, row["width"]) == ("SBHD", "causal", "min")
    options = {"layout": layout, "mask": mask, "interface": "seed" if seed else "operator"}
    local = {"index_base": base[0]} if base else {}
    return Spec.model_validate({"schema": "v4gen/1", "name": "covered", "targets": ["cpu"], **row, **options, **local})


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


def title(row: Row) -> str:
    return "-".join(map(str, row.values()))


@pytest.mark.parametrize("row", ROWS[SEED % SHARES :: SHARES], ids=title)
def test_results_are_right(row: Row, load: Callable[[Spec], Package]) -> None:
    spec = spec_of(row)
    package = load(spec)
    for case in cases(spec):
        found = [found for found in measure(Subject.of(package, spec, case, "cpu")) if not found.passed]
        assert not found, f"{case.name}: {case.description}"
