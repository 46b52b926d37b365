"""One case as data: the sizes, values, mask, indices, gradient and views that a package is called with.

`growing`, `late` and `packed` make the usual ones in whichever way the spec's mask allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from v4gen.read.spec import Spec
    from v4gen.run.golden import Golden

Values = Literal[
    "normal",
    "integers",
    "counting",
    "ties",
    "equal",
    "ends",
    "plateaus",
    "negative weights",
    "huge",
    "tiny",
    "enormous",
    "minute",
    "low mantissa",
    "stripes",
    "outliers",
    "NaN in a key",
    "NaN in a query",
    "NaN in a weight",
    "inf in a key",
    "inf below zero",
    "golden",
]
Ranges = Literal["growing", "late", "sliding", "mixed", "empty", "inverted", "outside"]
Given = Literal["none", "replay", "void", "duplicates"]
GradientKind = Literal["dense", "expanded", "transposed", "non-finite void", "tiny", "uneven", "by key"]
View = Literal["contiguous", "transposed", "expanded", "fused", "strided"]
Promise = Literal["none", "exact", "loose", "broken"]

OPERATIONS_PER_CASE = 8e9
"""Most floating-point operations of one forward and one backward of a case."""

MANY_KEYS = 9001
"""More keys than a selection puts in order at a time, whatever the top-k."""

SCORES_PER_CASE = 1 << 20
"""Most elements of a case's score matrix."""

OPERATIONS_OF_DOCUMENTS, SCORES_OF_DOCUMENTS = 2e9, 1 << 18
"""The same for documents: a key costs the tokens before it there, so that nearly every case is a large one."""

LAST_OFFSET = 2**31 - 1000
"""Positions are int32; with huge windows this offset sees fewer keys than asked for."""


class Document(NamedTuple):
    """One of the documents that are packed into a sequence."""

    tokens: int
    keys: int


@dataclass(frozen=True)
class Case:
    """One line of the matrix.

    `keys` is N; `ratio` and `topk` are the spec's, except in cases that set them at run time through the seed's
    function. What a query sees is told by `query_offset` (mask causal: queries stand there and after), by `ranges`
    (mask ranges; of each sample its own where `per_sample`) or by `documents` (mask varlen: `queries` and `keys` are
    their sums, and what lies `around` them, before the first and behind the last); `promise` says what `max_seqlen_k`
    is told beside the latter two. Replay names at most `given_columns` keys a query.
    """

    name: str
    batch: int
    queries: int
    keys: int
    ratio: int
    topk: int
    query_offset: int = 0
    ranges: Ranges = "growing"
    per_sample: bool = False
    documents: tuple[Document, ...] = ()
    around: tuple[Document, Document] = (Document(0, 0), Document(0, 0))
    promise: Promise = "none"
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
        count = len(self.documents)
        documents = f" in {count} document{'s' * (count > 1)}" if count else ""
        documents += " and around them" * any(map(any, self.around))
        ranges = "" if self.ranges == "growing" else f"{self.ranges} ranges" + " by sample" * self.per_sample
        promise = "" if self.promise == "none" else f"{self.promise} max_seqlen_k"
        given = "" if self.given == "none" else f"{self.given} indices"
        gradient = "" if self.gradient == "dense" else f"{self.gradient} gradient"
        view = "" if self.view == "contiguous" else self.view
        values = "" if self.values == "normal" else self.values
        parts = (sizes + offset + documents, ranges, promise, values, given, gradient, view)
        return ", ".join(part for part in parts if part)

    def sets_constants(self, spec: Spec) -> bool:
        """Whether ratio or top-k differ from the spec's."""
        return (self.ratio, self.topk) != (spec.compress_ratio, spec.topk)

    @property
    def scores(self) -> int:
        """Elements of the score matrix."""
        return self.batch * self.queries * self.keys

    def operations(self, spec: Spec) -> float:
        """Floating-point operations of one forward and one backward, void columns counted."""
        width = min(self.topk, self.keys) if spec.width == "min" else self.topk
        return 2.0 * spec.heads * spec.dim * self.batch * self.queries * (self.keys + 3 * width)


def growing(spec: Spec, name: str, queries: int, batch: int = 1, keys: int | None = None) -> Case:
    """Self-attention over a whole sequence, or two documents; a key for each window where `keys` are not told."""
    ratio = spec.compress_ratio
    if spec.mask == "varlen":
        first = queries * 3 // 5
        windows = first // ratio if keys is None else min(first // ratio, keys)
        last = (queries - first) // ratio if keys is None else keys - windows
        return packed(spec, name, ((first, windows), (queries - first, last)))
    keys = queries // ratio if keys is None else keys
    batch = 1 if spec.layout == "THD" else batch
    return Case(name, batch, queries, keys, ratio, spec.topk, per_sample=spec.mask == "ranges" and batch > 1)


def late(spec: Spec, name: str, keys: int, queries: int = 4, batch: int = 1) -> Case:
    """A few queries that see many keys: all but the first see all `keys`; a document needs the tokens before them."""
    ratio = spec.compress_ratio
    if spec.mask == "varlen":
        return packed(spec, name, ((min(ratio, 5), 1), (max(keys * ratio - 2, 0) + queries, keys)))
    case = growing(spec, name, queries, batch, keys)
    return (
        replace(case, ranges="late") if spec.mask == "ranges" else replace(case, query_offset=late_offset(keys, ratio))
    )


def late_offset(keys: int, ratio: int) -> int:
    """A query offset two positions before `keys` keys are visible, or the last one that leaves room in int32."""
    return max(min(keys * ratio - 2, LAST_OFFSET), 0)


def packed(spec: Spec, name: str, documents: Sequence[tuple[int, int]]) -> Case:
    """Documents of so many tokens and keys each, one after another."""
    lengths = tuple(Document(tokens, keys) for tokens, keys in documents)
    tokens, keys = (sum(lengths) for lengths in zip(*lengths, strict=True))
    return Case(name, 1, tokens, keys, spec.compress_ratio, spec.topk, documents=lengths)


def deep_keys(spec: Spec) -> int:
    """More keys than top-k, and no multiple of a tile."""
    return spec.topk + max(45, spec.topk // 8) + 1


def is_affordable(case: Case, spec: Spec) -> bool:
    """Whether `case` keeps to the limits on operations and scores."""
    scores = SCORES_OF_DOCUMENTS if case.documents else SCORES_PER_CASE
    return case.operations(spec) <= OPERATIONS_PER_CASE and case.scores <= scores


def affordable(case: Case, spec: Spec) -> Case:
    """`case`, or the same with fewer queries where it costs too much; of documents the longest are cut in half."""
    if case.documents:
        small = case.operations(spec) <= OPERATIONS_OF_DOCUMENTS and case.scores <= SCORES_OF_DOCUMENTS
        return case if small else affordable(_halved(case, spec), spec)
    excess = max(case.operations(spec) / OPERATIONS_PER_CASE, case.scores / SCORES_PER_CASE)
    return case if excess <= 1 else replace(case, queries=max(1, int(case.queries / excess)))


def _halved(case: Case, spec: Spec) -> Case:
    documents = list(case.documents)
    longest = documents.index(max(documents))
    tokens, keys = documents[longest]
    documents[longest] = Document(tokens // 2, min(keys, max(tokens // 2 // case.ratio, 1)))
    shorter = packed(spec, case.name, documents)
    less_tokens, less_keys = (case.documents[longest][n] - shorter.documents[longest][n] for n in (0, 1))
    return replace(case, queries=case.queries - less_tokens, keys=case.keys - less_keys, documents=shorter.documents)
