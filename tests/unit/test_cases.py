"""The case matrix: complete for each spec, affordable, and in a fixed order."""

import pytest
import torch

from v4gen.read.spec import Spec
from v4gen.run.case import OPERATIONS_OF_DOCUMENTS, OPERATIONS_PER_CASE
from v4gen.run.cases import case_matrix, selection_cases
from v4gen.run.golden import GOLDEN_TABLES
from v4gen.run.oracle import is_void
from v4gen.run.values import GUARD, make_gradient, make_inputs, make_problem


def spec_of(**keys: object) -> Spec:
    sizes = {"heads": 4, "dim": 32, "topk": 8, "compress_ratio": 4}
    return Spec.model_validate({"schema": "v4gen/1", "name": "some", **sizes, **keys})


FLASH = spec_of(heads=64, dim=128, topk=512, interface="seed", layout="SBHD", width="min")
LONGEST = spec_of(heads=128, dim=256, topk=4096, compress_ratio=1)
SMALLEST = spec_of(heads=1, dim=16, topk=1, compress_ratio=1)


@pytest.mark.parametrize("spec", [FLASH, LONGEST, SMALLEST, spec_of()], ids=["flash", "longest", "smallest", "tiny"])
def test_every_matrix_has_the_hard_cases(spec: Spec) -> None:
    cases = case_matrix(spec)
    assert case_matrix(spec) == cases
    assert all(case.operations(spec) <= OPERATIONS_PER_CASE for case in cases)
    assert sum(case.keys > spec.topk for case in cases) >= 4
    assert {0, 1, 2}.issubset(case.batch for case in cases)
    assert {0, 1, 13, 63, 64, 65}.issubset(case.queries for case in cases) or spec is LONGEST
    assert {"ties", "plateaus", "counting", "low mantissa"}.issubset(case.values for case in cases)
    assert {"replay", "void", "duplicates"}.issubset(case.given for case in cases)
    assert {"expanded", "transposed", "non-finite void", "tiny"}.issubset(case.gradient for case in cases)
    assert {"transposed", "expanded", "fused", "strided"}.issubset(case.view for case in cases)


@pytest.mark.parametrize(
    "keys", [{"mask": "ranges"}, {"mask": "ranges", "layout": "THD"}, {"mask": "varlen", "layout": "THD"}], ids=str
)
def test_every_mask_has_the_hard_cases(keys: dict[str, object]) -> None:
    spec = spec_of(**keys)
    cases = case_matrix(spec)
    assert sum(case.keys > spec.topk for case in cases) >= 4
    assert all(case.batch == 1 for case in cases) is (spec.layout == "THD")
    assert {"ties", "plateaus", "counting", "NaN in a key"}.issubset(case.values for case in cases)
    assert {"replay", "void", "duplicates"}.issubset(case.given for case in cases)
    assert {"exact", "loose", "broken"}.issubset(case.promise for case in cases)
    assert not any(case.query_offset for case in cases)
    assert all(bool(case.documents) is (spec.mask == "varlen") for case in cases)
    kinds = {case.ranges for case in cases}
    every = {"growing", "late", "mixed", "empty", "inverted", "outside", "sliding"}
    assert kinds == (every if spec.mask == "ranges" else kinds)
    assert any(case.per_sample for case in cases) is (spec.mask == "ranges" and spec.layout != "THD")


def test_documents_of_every_length() -> None:
    spec = spec_of(mask="varlen", layout="THD")
    documents = {document for case in case_matrix(spec) for document in case.documents}
    assert {0, 1, 3, 4, 5}.issubset(document.tokens for document in documents)
    assert any(document.keys < document.tokens // 4 for document in documents)
    assert any(document.keys > document.tokens // 4 for document in documents)
    assert {1, 2, 3, 40}.issubset(len(case.documents) for case in case_matrix(spec))


def test_long_documents_are_cut_and_selection_is_still_tried() -> None:
    spec = spec_of(heads=32, dim=128, topk=2048, compress_ratio=1, mask="varlen", layout="THD")
    assert all(case.operations(spec) <= OPERATIONS_PER_CASE for case in case_matrix(spec))
    assert sum(case.operations(spec) for case in case_matrix(spec)) < 60 * OPERATIONS_OF_DOCUMENTS
    assert all(case.keys > spec.topk for case in selection_cases(spec))
    assert len(list(selection_cases(spec))) == 2
    assert not list(selection_cases(FLASH))
    assert not list(selection_cases(spec_of(mask="varlen", layout="THD")))


def test_golden_tables_belong_to_their_spec() -> None:
    for table in GOLDEN_TABLES:
        spec = spec_of(heads=table.heads, dim=table.dim, topk=table.topk, compress_ratio=table.ratio)
        assert [case.golden for case in case_matrix(spec) if case.golden] == [table]
    assert not any(case.golden for case in case_matrix(FLASH))


def test_run_time_constants_are_the_seeds_alone() -> None:
    assert {case.ratio for case in case_matrix(FLASH)} == {4, 1, 3, 64}
    assert {case.ratio for case in case_matrix(spec_of())} == {4}


def test_positions_stay_in_int32() -> None:
    widest = spec_of(compress_ratio=2**31 - 1)
    assert all(case.query_offset + case.queries < 2**31 - 1 for case in case_matrix(widest))


def test_scratch_is_exceeded_where_it_is_small() -> None:
    small = spec_of(forward={"scratch_mib": 1})
    assert any(4 * case.queries * case.keys > 2**20 for case in case_matrix(small))
    assert "more scores than scratch" not in {case.name for case in case_matrix(FLASH)}


def test_views_differ_in_memory_and_not_in_values() -> None:
    spec = spec_of(layout="SBHD")
    by_view = {case.view: case for case in case_matrix(spec) if case.view != "contiguous"}
    plain = make_problem(by_view["fused"], spec, make_inputs(by_view["fused"], spec, "cpu"))
    assert plain.q.isfinite().all()
    for view, case in by_view.items():
        inputs = make_inputs(case, spec, "cpu")
        assert not inputs.q.is_contiguous(), view
        assert make_problem(case, spec, inputs).q.isfinite().all()
    fused = make_inputs(by_view["fused"], spec, "cpu")
    assert fused.q.data_ptr() % 16
    assert make_inputs(by_view["expanded"], spec, "cpu").k.stride(1) == 0


def test_contiguous_inputs_stand_between_guards() -> None:
    spec = spec_of()
    case = next(case for case in case_matrix(spec) if case.name == "replay")
    inputs = make_inputs(case, spec, "cpu")
    assert inputs.given is not None
    for tensor in inputs.tensors.values():
        assert tensor.is_contiguous()
        assert tensor.data_ptr() % 16 == 0
        assert tensor.storage_offset() == GUARD


@pytest.mark.parametrize("name", [case.name for case in case_matrix(spec_of()) if case.gradient != "dense"])
def test_upstream_gradients(name: str) -> None:
    spec = spec_of()
    case = next(case for case in case_matrix(spec) if case.name == name)
    visible = make_problem(case, spec, make_inputs(case, spec, "cpu")).visible
    indices = torch.arange(4, dtype=torch.int32).expand(case.batch, case.queries, 4)
    grad = make_gradient(case, indices, visible, "cpu")
    void = is_void(indices, visible)
    assert grad.shape == indices.shape
    assert grad.dtype == torch.float32
    assert grad[~void].isfinite().all()
    assert grad.is_contiguous() is (case.gradient in ("tiny", "uneven", "non-finite void"))
    assert case.gradient != "non-finite void" or not grad[void].isfinite().any()
