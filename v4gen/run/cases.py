"""The case matrix as data: which shapes, values, indices, gradients and views a package is held to.

Cases are made for one spec, so that they sit around its own compress ratio and top-k: a spec with K = 512 gets rows
with 511, 512, 513 and more visible keys. Few queries at a large offset see many keys at little cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import isqrt
from typing import TYPE_CHECKING, Literal

from v4gen.run.golden import GOLDEN_TABLES, Golden

if TYPE_CHECKING:
    from v4gen.read.spec import Spec

Values = Literal[
    "normal",
    "integers",
    "counting",
    "ties",
    "plateaus",
    "negative weights",
    "huge",
    "tiny",
    "enormous",
    "minute",
    "low mantissa",
    "stripes",
    "NaN in a key",
    "NaN in a query",
    "NaN in a weight",
    "inf in a key",
    "inf below zero",
    "golden",
]
Given = Literal["none", "replay", "void", "duplicates"]
GradientKind = Literal["dense", "expanded", "transposed", "non-finite void", "tiny", "by key"]
View = Literal["contiguous", "transposed", "expanded", "fused", "strided"]

OPERATIONS_PER_CASE = 8e9
"""Most floating-point operations of one forward and one backward of a case."""

SCORES_PER_CASE = 1 << 20
"""Most elements of a case's score matrix."""

MANY_KEYS = 9001
"""More keys than a selection puts in order at a time, whatever the top-k."""

LAST_OFFSET = 2**31 - 1000
"""Positions are int32; with huge windows this offset sees fewer keys than asked for."""


@dataclass(frozen=True)
class Case:
    """One line of the matrix.

    `keys` is N; queries stand at `query_offset`, `query_offset` + 1, ...; `ratio` and `topk` are the spec's, except in
    cases that set them at run time through the seed's function. Replay names at most `given_columns` keys a query.
    """

    name: str
    batch: int
    queries: int
    keys: int
    ratio: int
    topk: int
    query_offset: int = 0
    values: Values = "normal"
    given: Given = "none"
    given_columns: int = 24
    gradient: GradientKind = "dense"
    view: View = "contiguous"
    seed: int = 0
    golden: Golden | None = None

    @property
    def description(self) -> str:
        """Sizes and kinds in one line, defaults left out."""
        sizes = f"B={self.batch} S={self.queries} N={self.keys}"
        offset = f" at {self.query_offset}" if self.query_offset else ""
        given = "" if self.given == "none" else f"{self.given} indices"
        gradient = "" if self.gradient == "dense" else f"{self.gradient} gradient"
        view = "" if self.view == "contiguous" else self.view
        values = "" if self.values == "normal" else self.values
        return ", ".join(part for part in (sizes + offset, values, given, gradient, view) if part)

    def sets_constants(self, spec: Spec) -> bool:
        """Whether ratio or top-k differ from the spec's."""
        return (self.ratio, self.topk) != (spec.compress_ratio, spec.topk)

    def operations(self, spec: Spec) -> float:
        """Floating-point operations of one forward and one backward, void columns counted."""
        width = min(self.topk, self.keys) if spec.width == "min" else self.topk
        return 2.0 * spec.heads * spec.dim * self.batch * self.queries * (self.keys + 3 * width)


def case_matrix(spec: Spec) -> tuple[Case, ...]:
    """Every case for `spec`, in a fixed order, names unique.

    Raises ValueError where two cases share a name (a mistake in the matrix).
    """
    # a shape is its size, so it is left out where it costs too much; any other case makes its point with fewer queries
    shapes = [case for case in _shapes(spec) if _affordable(case, spec) == case]
    families = (_around_topk, _values, _long_rows, _given_indices, _gradients, _views, _run_time_constants, _golden)
    others = [_affordable(case, spec) for family in families for case in family(spec)]
    cases = tuple(replace(case, seed=seed) for seed, case in enumerate(shapes + others))
    if len({case.name for case in cases}) != len(cases):
        raise ValueError("two cases share a name")
    return cases


def late_offset(keys: int, ratio: int) -> int:
    """A query offset two positions before `keys` keys are visible, or the last one that leaves room in int32."""
    return max(min(keys * ratio - 2, LAST_OFFSET), 0)


def _affordable(case: Case, spec: Spec) -> Case:
    scores = case.batch * case.queries * case.keys
    excess = max(case.operations(spec) / OPERATIONS_PER_CASE, scores / SCORES_PER_CASE)
    return case if excess <= 1 else replace(case, queries=max(1, int(case.queries / excess)))


def _causal(spec: Spec, name: str, queries: int, batch: int = 1) -> Case:
    """Self-attention over a whole sequence."""
    ratio = spec.compress_ratio
    return Case(name, batch, queries, queries // ratio, ratio, spec.topk)


def _late(spec: Spec, name: str, keys: int, queries: int = 4, batch: int = 1) -> Case:
    """A few queries at the end of a sequence: all but the first see all `keys` keys."""
    ratio = spec.compress_ratio
    return Case(name, batch, queries, keys, ratio, spec.topk, query_offset=late_offset(keys, ratio))


def _deep_keys(spec: Spec) -> int:
    """More keys than top-k, and no multiple of a tile."""
    return spec.topk + max(45, spec.topk // 8) + 1


def _shapes(spec: Spec) -> Iterator[Case]:
    ratio = spec.compress_ratio
    yield replace(_causal(spec, "no query", 0, batch=2), keys=3)
    yield _causal(spec, "no sample", 9, batch=0)
    yield replace(_causal(spec, "no key", 5), keys=0)
    yield _causal(spec, "one query", 1)
    if ratio > 1:
        yield replace(_causal(spec, "below one window", ratio - 1, batch=2), keys=2)
    yield _causal(spec, "one window", ratio)
    yield _causal(spec, "three samples", 13, batch=3)
    yield replace(_causal(spec, "keys beyond the queries", 13, batch=2), keys=13 // ratio + 5)
    yield replace(_causal(spec, "fewer keys than windows", 65), keys=max(65 // ratio - 3, 1))
    yield _causal(spec, "block - 1", 63)
    yield _causal(spec, "block", 64, batch=2)
    yield _causal(spec, "block + 1", 65)
    yield _causal(spec, "two blocks + 1", 129)
    yield _late(spec, "one tile of keys + 1", 129, queries=3)
    yield _late(spec, "many tiles of keys", 1021, queries=2)
    scratch_scores = spec.forward.scratch_mib * 2**20 // 4
    yield _late(spec, "more scores than scratch", scratch_scores // 67 + 1, queries=67)
    yield _causal(spec, "a sequence longer than scratch", isqrt(scratch_scores * ratio) + 67)


def _around_topk(spec: Spec) -> Iterator[Case]:
    ratio, topk = spec.compress_ratio, spec.topk
    yield _late(spec, "as many keys as top-k", topk)
    yield _late(spec, "one key fewer than top-k", topk - 1, batch=2)
    straddling = replace(_late(spec, "top-k and one more", topk + 1), query_offset=late_offset(topk, ratio))
    yield replace(straddling, queries=min(ratio + 3, 12))
    yield _late(spec, "more keys than top-k", _deep_keys(spec), batch=2, queries=5)


def _values(spec: Spec) -> Iterator[Case]:
    deep, middle = _deep_keys(spec), 41
    yield replace(_causal(spec, "integers", 65, batch=2), values="integers")
    yield replace(_causal(spec, "long positive sums", 129), values="counting")
    yield replace(_late(spec, "integers beyond top-k", deep), values="integers")
    yield replace(_late(spec, "tied keys", deep, batch=2), values="ties")
    yield replace(_causal(spec, "tied keys from the start", 45), values="ties")
    yield replace(_late(spec, "plateaus of zero", deep), values="plateaus")
    yield replace(_late(spec, "low mantissa bits", deep), values="low mantissa")
    yield replace(_late(spec, "negative weights", deep), values="negative weights")
    yield replace(_late(spec, "huge values", middle), values="huge")
    yield replace(_late(spec, "tiny values", middle), values="tiny")
    if spec.dtype == "bfloat16":  # beyond float16's range
        yield replace(_late(spec, "enormous values", middle), values="enormous")
        yield replace(_late(spec, "minute values", middle), values="minute")
    yield replace(_late(spec, "NaN in a key", middle, batch=2), values="NaN in a key")
    yield replace(_late(spec, "NaN in a query", middle, batch=2), values="NaN in a query")
    yield replace(_late(spec, "NaN in a weight", middle), values="NaN in a weight")
    yield replace(_late(spec, "inf in a key", middle, batch=2), values="inf in a key")
    yield replace(_late(spec, "inf below zero", min(middle, spec.topk)), values="inf below zero")


def _long_rows(spec: Spec) -> Iterator[Case]:
    """Thousands of candidates a row: more than any tile, bin or list that a selection works in holds."""
    many = _late(spec, "thousands of keys", MANY_KEYS, queries=2)
    yield many
    yield replace(many, name="thousands of tied keys", values="ties")
    yield replace(many, name="thousands of zeros", values="plateaus")
    yield replace(many, name="thousands of scores in one octave", values="stripes")
    yield replace(many, name="thousands of keys and an inf", values="inf in a key")


def _given_indices(spec: Spec) -> Iterator[Case]:
    ratio = spec.compress_ratio
    yield replace(_late(spec, "replay", _deep_keys(spec), batch=2), given="replay")
    yield replace(_causal(spec, "void indices", 45, batch=2), given="void")
    yield replace(_causal(spec, "void indices, exact", 45, batch=2), given="void", values="integers")
    yield replace(_late(spec, "void indices beside inf", 41), given="void", values="inf in a key")
    yield replace(_late(spec, "duplicate indices", 41, batch=2), given="duplicates")
    yield replace(_late(spec, "duplicate indices, exact", 41), given="duplicates", values="integers")
    wide = _late(spec, "replay of many keys", 301, queries=3, batch=2)
    yield replace(wide, given="replay", given_columns=300)
    if ratio > 1:
        yield replace(_causal(spec, "indices below one window", ratio - 1), given="void", keys=2)
    yield replace(_causal(spec, "indices without a key", 5), given="void", keys=0)


def _gradients(spec: Spec) -> Iterator[Case]:
    mixed = _causal(spec, "expanded gradient", 21, batch=2)
    yield replace(mixed, gradient="expanded")
    yield replace(mixed, name="transposed gradient", gradient="transposed")
    yield replace(mixed, name="NaN gradient, void columns", gradient="non-finite void")
    yield replace(mixed, name="NaN gradient, void indices", gradient="non-finite void", given="void")
    yield replace(_late(spec, "tiny gradient", 41), gradient="tiny")


def _views(spec: Spec) -> Iterator[Case]:
    base = _late(spec, "transposed inputs", 23, queries=7, batch=2)
    yield replace(base, view="transposed")
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
    for table in GOLDEN_TABLES:
        if (spec.heads, spec.dim, spec.topk, spec.compress_ratio) == (table.heads, table.dim, table.topk, table.ratio):
            yield Case(
                f"golden table {table.name}",
                table.batch,
                table.queries,
                table.keys,
                table.ratio,
                table.topk,
                values="golden",
                gradient="by key",
                golden=table,
            )
