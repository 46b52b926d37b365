"""Random cases beside the matrix: a flip that passes the matrix is wrong if one of these shows it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

from v4gen.run.case import Case, Document, Given, GradientKind, Ranges, Values, View, packed

if TYPE_CHECKING:
    from v4gen.read.spec import Spec

DEEPEST = 3000
MOST_SCORES = 1 << 17


def random_cases(spec: Spec, seed: str, count: int) -> Iterator[Case]:
    """Cases of random sizes, masks, values, indices, gradients and views that are legal for `spec`."""
    rng = random.Random(seed)
    left_out = {"golden"} | ({"enormous", "minute", "outliers"} if spec.dtype == "float16" else set())
    for number in range(count):
        case = _sized(rng, spec, f"random {number}")
        given: Given = rng.choice(get_args(Given)) if case.keys else "none"
        view = rng.choice([view for view in get_args(View) if view != "expanded" or spec.layout != "THD"])
        yield replace(
            case,
            values=rng.choice([kind for kind in get_args(Values) if kind not in left_out]),
            given=given,
            gradient=rng.choice([kind for kind in get_args(GradientKind) if kind != "by key"]),
            view=view,
            ranges=rng.choice(get_args(Ranges)),
            seed=10_000 + number,
        )


def _sized(rng: random.Random, spec: Spec, name: str) -> Case:
    if spec.mask == "varlen":
        lengths = [rng.choice((0, 1, rng.randrange(40), rng.randrange(400))) for _ in range(rng.randrange(1, 8))]
        documents = [(length, max(length // spec.compress_ratio + rng.randrange(-1, 3), 0)) for length in lengths]
        case = packed(spec, name, documents)
        around = Document(rng.randrange(3), rng.randrange(3)), Document(rng.randrange(3), rng.randrange(3))
        outside = [sum(sizes) for sizes in zip(*around, strict=True)]
        return replace(case, queries=case.queries + outside[0], keys=case.keys + outside[1], around=around)
    batch = 1 if spec.layout == "THD" else rng.randrange(1, 4)
    keys = rng.choice((rng.randrange(4), rng.randrange(100), rng.randrange(DEEPEST)))
    queries = min(rng.choice((1, 2, rng.randrange(1, 70))), max(MOST_SCORES // max(batch * keys, 1), 1))
    offset = rng.randrange((keys + 2) * spec.compress_ratio) if spec.mask == "causal" else 0
    by_sample = spec.mask == "ranges" and batch > 1 and rng.random() < 0.5
    case = Case(name, batch, queries, keys, spec.compress_ratio, spec.topk, query_offset=offset, per_sample=by_sample)
    return case if spec.mask == "causal" else replace(case, promise=rng.choice(("none", "exact", "loose", "broken")))
