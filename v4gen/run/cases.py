"""The case matrix: which shapes, values, indices, gradients and views a package is held to.

Cases are made for one spec, so that they sit around its own compress ratio and top-k: a spec with K = 512 gets rows
with 511, 512, 513 and more visible keys. Few queries at a large offset see many keys at little cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import isqrt
from typing import TYPE_CHECKING

from v4gen.run.case import MANY_KEYS, Case, affordable, deep_keys, growing, is_affordable, late, late_offset
from v4gen.run.golden import GOLDEN_TABLES
from v4gen.run.mask_cases import mask_cases

if TYPE_CHECKING:
    from v4gen.read.spec import Spec

OPERATIONS_OF_SELECTION = 2e11
"""The same as OPERATIONS_PER_CASE for a case without gradients and oracle; the operations that it lacks are counted."""


MOST_TELLING = "integers beyond top-k"
"""The case that comes first: in a wrong package it is likely to fail, and soon, for all that is small in it."""


def case_matrix(spec: Spec) -> tuple[Case, ...]:
    """Every case for `spec`, in a fixed order, names unique.

    Raises ValueError where two cases share a name (a mistake in the matrix).
    """
    # a shape is its size, so it is left out where it costs too much; any other case makes its point with fewer queries
    shapes = [case for case in _shapes(spec) if is_affordable(case, spec)]
    families = (_around_topk, _values, _long_rows, _given_indices, _gradients, _views, mask_cases, _run_time_constants)
    others = [affordable(case, spec) for family in (*families, _golden) for case in family(spec)]
    cases = [replace(case, seed=seed) for seed, case in enumerate(shapes + others)]
    if len({case.name for case in cases}) != len(cases):
        raise ValueError("two cases share a name")
    return tuple(sorted(cases, key=lambda case: case.name != MOST_TELLING))


def selection_cases(spec: Spec) -> Iterator[Case]:
    """A document with more keys than top-k, where those of the matrix are too short for it: for selection alone."""
    if spec.mask != "varlen":
        return
    deep = late(spec, "more keys than top-k, selection", deep_keys(spec))
    if affordable(deep, spec) != deep and deep.operations(spec) <= OPERATIONS_OF_SELECTION:
        yield replace(deep, seed=600)
        yield replace(deep, name="tied keys beyond top-k, selection", values="ties", seed=601)


def _shapes(spec: Spec) -> Iterator[Case]:
    ratio = spec.compress_ratio
    yield growing(spec, "no query", 0, batch=2, keys=3)
    if spec.layout != "THD":
        yield growing(spec, "no sample", 9, batch=0)
    yield growing(spec, "no key", 5, keys=0)
    yield growing(spec, "one query", 1)
    yield growing(spec, "one query and one key", 1, keys=1)
    if ratio > 1:
        yield growing(spec, "below one window", ratio - 1, batch=2, keys=2)
    yield growing(spec, "one window", ratio)
    yield growing(spec, "three samples", 13, batch=3)
    yield growing(spec, "keys beyond the queries", 13, batch=2, keys=13 // ratio + 5)
    yield growing(spec, "fewer keys than windows", 65, keys=max(65 // ratio - 3, 1))
    yield growing(spec, "block - 1", 63)
    yield growing(spec, "block", 64, batch=2)
    yield growing(spec, "block + 1", 65)
    yield growing(spec, "two blocks + 1", 129)
    yield late(spec, "one tile of keys + 1", 129, queries=3)
    yield late(spec, "many tiles of keys", 1021, queries=2)
    scratch_scores = spec.forward.scratch_mib * 2**20 // 4
    windows = late(spec, "more scores than scratch", scratch_scores // 67 + 1, queries=67)
    yield windows
    yield replace(windows, name="more scores than scratch, replay", given="replay")
    yield growing(spec, "a sequence longer than scratch", isqrt(scratch_scores * ratio) + 67)


def _around_topk(spec: Spec) -> Iterator[Case]:
    ratio, topk = spec.compress_ratio, spec.topk
    straddling = late(spec, "top-k and one more", topk + 1, queries=min(ratio + 3, 12))
    if spec.mask == "causal":
        straddling = replace(straddling, query_offset=late_offset(topk, ratio))
    cases = (
        late(spec, "as many keys as top-k", topk),
        late(spec, "one key fewer than top-k", topk - 1, batch=2),
        straddling,
        late(spec, "more keys than top-k", deep_keys(spec), batch=2, queries=5),
    )
    # queries can be spared, but not keys
    yield from (case for case in cases if affordable(case, spec).keys == case.keys)


def _values(spec: Spec) -> Iterator[Case]:
    deep, middle = deep_keys(spec), 41
    yield replace(growing(spec, "integers", 65, batch=2), values="integers")
    yield replace(growing(spec, "long positive sums", 129), values="counting")
    yield replace(late(spec, "integers beyond top-k", deep), values="integers")
    yield replace(late(spec, "tied keys", deep, batch=2), values="ties")
    yield replace(growing(spec, "tied keys from the start", 45), values="ties")
    for keys in (65, 129):  # a power of two and one more
        yield replace(late(spec, f"{keys} equal keys", keys), values="equal")
    yield replace(late(spec, "plateaus of zero", deep), values="plateaus")
    yield replace(late(spec, "low mantissa bits", deep), values="low mantissa")
    yield replace(late(spec, "negative weights", deep), values="negative weights")
    yield replace(late(spec, "huge values", middle), values="huge")
    yield replace(late(spec, "tiny values", middle), values="tiny")
    if spec.dtype == "bfloat16":  # beyond float16's range
        yield replace(late(spec, "enormous values", middle), values="enormous")
        yield replace(late(spec, "minute values", middle), values="minute")
    yield replace(late(spec, "NaN in a key", middle, batch=2), values="NaN in a key")
    yield replace(late(spec, "NaN in a query", middle, batch=2), values="NaN in a query")
    yield replace(late(spec, "NaN in a weight", middle), values="NaN in a weight")
    yield replace(late(spec, "inf in a key", middle, batch=2), values="inf in a key")
    yield replace(late(spec, "inf below zero", min(middle, spec.topk)), values="inf below zero")


def _long_rows(spec: Spec) -> Iterator[Case]:
    """Thousands of candidates a row: more than any tile, bin or list that a selection works in holds."""
    many = late(spec, "thousands of keys", MANY_KEYS, queries=2)
    yield many
    yield replace(many, name="thousands of tied keys", values="ties")
    yield replace(many, name="thousands of keys, the best at the ends", values="ends")
    yield replace(many, name="thousands of zeros", values="plateaus")
    yield replace(many, name="thousands of scores in one octave", values="stripes")
    yield replace(many, name="thousands of close scores below a few", values="outliers")
    yield replace(many, name="thousands of keys and an inf", values="inf in a key")


def _given_indices(spec: Spec) -> Iterator[Case]:
    ratio = spec.compress_ratio
    yield replace(late(spec, "replay", deep_keys(spec), batch=2), given="replay")
    yield replace(growing(spec, "void indices", 45, batch=2), given="void")
    yield replace(growing(spec, "void indices, exact", 45, batch=2), given="void", values="integers")
    yield replace(late(spec, "void indices beside inf", 41), given="void", values="inf in a key")
    yield replace(late(spec, "duplicate indices", 41, batch=2), given="duplicates")
    yield replace(late(spec, "duplicate indices, exact", 41), given="duplicates", values="integers")
    wide = late(spec, "replay of many keys", 301, queries=3, batch=2)
    yield replace(wide, given="replay", given_columns=300)
    if ratio > 1:
        yield replace(growing(spec, "indices below one window", ratio - 1, keys=2), given="void")
    yield replace(growing(spec, "indices without a key", 5, keys=0), given="void")


def _gradients(spec: Spec) -> Iterator[Case]:
    mixed = growing(spec, "expanded gradient", 21, batch=2)
    yield replace(mixed, gradient="expanded")
    yield replace(mixed, name="transposed gradient", gradient="transposed")
    yield replace(mixed, name="NaN gradient, void columns", gradient="non-finite void")
    yield replace(mixed, name="NaN gradient, void indices", gradient="non-finite void", given="void")
    yield replace(late(spec, "tiny gradient", 41), gradient="tiny")
    yield replace(late(spec, "uneven gradient", 41), gradient="uneven")


def _views(spec: Spec) -> Iterator[Case]:
    base = late(spec, "transposed inputs", 23, queries=7, batch=2)
    yield replace(base, view="transposed")
    if spec.layout != "THD":  # over the batch
        yield replace(base, name="expanded inputs", view="expanded")
    yield replace(base, name="inputs of a fused projection", view="fused")
    yield replace(base, name="strided inputs", view="strided")


def _run_time_constants(spec: Spec) -> Iterator[Case]:
    """The seed's function takes ratio and top-k at run time; any value must give right results."""
    if spec.interface != "seed":
        return
    for ratio, topk, queries in ((1, 7, 45), (3, 1000, 50), (64, 1, 129)):
        yield Case(f"ratio {ratio}, top-k {topk}", 2, queries, queries // ratio, ratio, topk)


def _golden(spec: Spec) -> Iterator[Case]:
    if spec.layout == "THD":
        return
    for table in GOLDEN_TABLES:
        if (spec.heads, spec.dim, spec.topk, spec.compress_ratio) == (table.heads, table.dim, table.topk, table.ratio):
            case = growing(spec, f"golden table {table.name}", table.queries, table.batch, table.keys)
            yield replace(case, values="golden", gradient="by key", golden=table)
