"""Which keys each query sees: the rules against their definitions, one query and one key at a time."""

from itertools import product

import pytest
import torch

from v4gen.read.spec import Spec
from v4gen.run.case import Case, Document
from v4gen.run.cases import case_matrix
from v4gen.run.mask import between, causal, of_documents
from v4gen.run.values import draw_mask, make_inputs


def spec_of(**keys: object) -> Spec:
    sizes = {"heads": 4, "dim": 32, "topk": 8, "compress_ratio": 4}
    return Spec.model_validate({"schema": "v4gen/1", "name": "some", **sizes, **keys})


RANGES = spec_of(mask="ranges")
PACKED = spec_of(mask="varlen", layout="THD")
LOCAL = spec_of(mask="varlen", layout="THD", index_base="local")


@pytest.mark.parametrize("offset", [0, 5])
def test_a_causal_query_sees_the_windows_that_have_closed(offset: int) -> None:
    visible = between(*causal(9, 6, ratio=4, offset=offset), keys=6)
    for t, s in product(range(9), range(6)):
        assert bool(visible[0, t, s]) == (s < (offset + t + 1) // 4)


def test_a_document_is_causal_by_itself() -> None:
    documents = tuple(Document(*sizes) for sizes in [(0, 0), (5, 2), (1, 1), (3, 3), (0, 2), (9, 1), (2, 0)])
    starts, ends = of_documents(documents, ratio=2)
    token = key = 0
    for document in documents:
        for i in range(document.tokens):
            assert int(starts[0, token + i]) == key
            assert int(ends[0, token + i]) == key + min((i + 1) // 2, document.keys)
        token, key = token + document.tokens, key + document.keys
    assert starts.shape == ends.shape == (1, token)


@pytest.mark.parametrize("case", [case for case in case_matrix(RANGES) if case.promise == "none"], ids=lambda c: c.name)
def test_ranges_are_what_their_arguments_say(case: Case) -> None:
    mask = draw_mask(case, RANGES)
    first, end = (mask.arguments[name] for name in ("cu_seqlen_ks", "cu_seqlen_ke"))
    assert isinstance(first, torch.Tensor) and isinstance(end, torch.Tensor)
    assert first.dtype == end.dtype == torch.int32
    assert first.shape == end.shape == ((case.batch, case.queries) if case.per_sample else (case.queries,))
    visible = mask.visible(case.keys)
    samples = first if case.per_sample else first[None]
    for m, t in product(range(samples.shape[0]), range(min(case.queries, 50))):
        low, high = int(samples[m, t]), int((end if case.per_sample else end[None])[m, t])
        inside = list(range(max(low, 0), min(high, case.keys)))
        assert visible[m, t].nonzero().flatten().tolist() == inside


def test_the_ranges_cover_what_a_caller_may_give() -> None:
    cases = {case.name: case for case in case_matrix(RANGES)}

    def bounds(name: str) -> tuple[list[int], list[int]]:
        told = draw_mask(cases[name], RANGES).arguments
        first, end = told["cu_seqlen_ks"], told["cu_seqlen_ke"]
        assert isinstance(first, torch.Tensor) and isinstance(end, torch.Tensor)
        return first.tolist(), end.tolist()

    assert all(end < first for first, end in zip(*bounds("inverted ranges"), strict=True))
    assert all(end == first for first, end in zip(*bounds("empty ranges"), strict=True))
    outside = [bound for told in bounds("ranges out of bounds") for bound in told]
    assert {-(2**31), 2**31 - 1} <= set(outside)
    lengths = [end - first for first, end in zip(*bounds("mixed ranges"), strict=True)]
    assert min(lengths) < 0 < max(lengths)


@pytest.mark.parametrize("spec", [RANGES, PACKED], ids=["ranges", "varlen"])
def test_a_promise_is_kept_or_cuts(spec: Spec) -> None:
    cases = {case.promise: case for case in case_matrix(spec) if case.given == "none"}
    lengths = {promise: draw_mask(case, spec) for promise, case in cases.items()}
    longest = {promise: int((mask.ends - mask.starts).max()) for promise, mask in lengths.items()}
    told = {promise: mask.arguments.get("max_seqlen_k") for promise, mask in lengths.items()}
    assert told["none"] is None
    assert told["exact"] == longest["exact"] > 0
    assert isinstance(told["loose"], int) and told["loose"] > longest["loose"]
    assert told["broken"] == longest["broken"]


def test_indices_count_from_their_documents_first_key() -> None:
    case = next(case for case in case_matrix(LOCAL) if case.name == "documents of every length, replay")
    mask = draw_mask(case, LOCAL)
    inputs = make_inputs(case, LOCAL, "cpu")
    assert inputs.given is not None
    given = inputs.given[None]
    keys = mask.to_keys(given)
    assert torch.equal(mask.to_indices(keys), given)
    named = keys >= 0
    assert torch.equal((keys - given)[named], mask.starts[..., None].expand(keys.shape)[named])
    visible = mask.visible(case.keys)
    seen = visible.gather(-1, keys.clamp(0, case.keys - 1)) & named & (keys < case.keys)
    assert seen.any() and not seen.all()


def test_packed_inputs_have_no_batch() -> None:
    case = next(case for case in case_matrix(PACKED) if case.name == "documents, strided")
    inputs = make_inputs(case, PACKED, "cpu")
    assert inputs.q.shape == (case.queries, 4, 32)
    assert inputs.k.shape == (case.keys, 32)
    assert inputs.weights.shape == (case.queries, 4)
    assert {name: tensor.is_contiguous() for name, tensor in inputs.tensors.items() if name.startswith("cu_")} == {
        "cu_seqlens_q": False,
        "cu_seqlens_k": False,
    }
