"""Cases of the masks that are told by tensors: ranges of every kind, and documents of every length."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from v4gen.run.case import MANY_KEYS, Case, Document, deep_keys, growing, packed

if TYPE_CHECKING:
    from v4gen.read.spec import Spec

LONGEST_WINDOW = 256
"""Tokens of a window that cases of several documents can do with; a longer one never closes there."""


def mask_cases(spec: Spec) -> Iterator[Case]:
    """The cases that only the spec's own mask has; none for causal, which all other cases are about."""
    if spec.mask == "ranges":
        yield from _ranges(spec)
    if spec.mask == "varlen":
        yield from _documents(spec)


def _ranges(spec: Spec) -> Iterator[Case]:
    shared = replace(growing(spec, "mixed ranges", 45, keys=37, batch=2), ranges="mixed", per_sample=False)
    yield shared
    yield replace(shared, name="mixed ranges, exact", values="integers")
    yield replace(shared, name="empty ranges", ranges="empty")
    yield replace(shared, name="inverted ranges", ranges="inverted")
    yield replace(shared, name="ranges out of bounds", ranges="outside")
    deep = replace(growing(spec, "mixed ranges beyond top-k", 7, keys=deep_keys(spec)), ranges="mixed")
    yield deep
    yield replace(deep, name="mixed ranges, tied keys", values="ties")
    yield replace(deep, name="mixed ranges, NaN in a key", values="NaN in a key")
    many = replace(growing(spec, "mixed ranges of thousands of keys", 7, keys=MANY_KEYS), ranges="mixed")
    yield many
    yield replace(many, name="sliding ranges, the best at the ends", ranges="sliding", values="ends")
    yield replace(many, name="mixed ranges, thousands of tied keys", values="ties")
    if spec.layout != "THD":
        yield replace(shared, name="mixed ranges by sample", per_sample=True)
        yield replace(shared, name="mixed ranges by sample, void indices", per_sample=True, given="void")
        yield replace(shared, name="mixed ranges by sample, strided", per_sample=True, view="strided")
        yield replace(shared, name="mixed ranges, expanded", per_sample=True, view="expanded")
    yield from _variants(shared)


def _documents(spec: Spec) -> Iterator[Case]:
    window = min(spec.compress_ratio, LONGEST_WINDOW)
    lengths = (0, 1, window - 1, window, window + 1, 0, 2 * window + 1, 3 * window - 1, 0)
    several = packed(spec, "documents of every length", [(length, length // window) for length in lengths])
    yield several
    yield replace(several, name="documents of every length, exact", values="integers")
    yield packed(spec, "one document", [(5 * window + 1, 5)])
    yield packed(spec, "empty documents", [(0, 0)] * 3)
    yield packed(spec, "documents of one token", [(1, 1)] * 20)
    yield packed(spec, "a document of keys alone", [(0, 3), (2 * window, 2), (0, 2)])
    yield packed(spec, "fewer keys than windows by document", [(4 * window, 1), (3 * window, 0), (5 * window, 2)])
    yield packed(spec, "more keys than windows by document", [(2 * window, 9), (window - 1, 4), (3 * window + 1, 30)])
    tokens, keys = several.queries, several.keys
    around = (Document(2, 1), Document(window + 3, 2))
    yield replace(several, name="around the documents", queries=tokens + window + 5, keys=keys + 3, around=around)
    yield packed(spec, "many documents", [(n * 7 % (3 * window), n * 7 % (3 * window) // window) for n in range(40)])
    planted = packed(spec, "NaN in another document", [(2 * window, 2), (window, 1), (6 * window + 1, 6)])
    yield replace(planted, values="NaN in a key")
    yield replace(planted, name="inf in another document", values="inf in a key", given="void")
    yield replace(several, name="documents, strided", view="strided")
    yield from _variants(several)


def _variants(case: Case) -> Iterator[Case]:
    """What is asked alike of either mask: given indices, void gradients and a promise about the longest range."""
    yield replace(case, name=f"{case.name}, replay", given="replay")
    yield replace(case, name=f"{case.name}, void indices", given="void")
    yield replace(case, name=f"{case.name}, duplicates", given="duplicates", values="integers")
    yield replace(case, name=f"{case.name}, NaN gradient", gradient="non-finite void")
    yield replace(case, name=f"{case.name}, NaN gradient, void", gradient="non-finite void", given="void")
    yield replace(case, name=f"{case.name}, max_seqlen_k", promise="exact")
    yield replace(case, name=f"{case.name}, loose max_seqlen_k", promise="loose")
    yield replace(case, name=f"{case.name}, broken max_seqlen_k", promise="broken")
    yield replace(case, name=f"{case.name}, broken max_seqlen_k, void indices", promise="broken", given="void")
