"""The backward kernels on a GPU, at given indices, against float64: any shape, any void column, both ways to sum dk."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product

import pytest
import torch
from torch import Tensor

from v4gen.read.spec import Spec
from v4gen.run.package import Package

pytestmark = pytest.mark.gpu

QUERIES, KEYS, BATCH = 150, 90, 3
TOPKS = (1, 64, 65, 200)
DQ_BOUND = {"bfloat16": 4e-3, "float16": 1e-3}
DK_BOUND = {"bfloat16": 3e-3, "float16": 8e-4}
DW_BOUND = 1e-5

# For Hopper by hand, two warpgroups from 65 heads on; the last two by the general body there too.
SHAPES = [(64, 128), (1, 16), (12, 48), (40, 96), (64, 64), (128, 128), (80, 32), (128, 256), (80, 48), (16, 256)]


def make_spec(heads: int, dim: int, **options: object) -> Spec:
    sizes = {"heads": heads, "dim": dim, "topk": 64, "compress_ratio": 4}
    return Spec.model_validate({"schema": "v4gen/1", "name": "backward", **sizes, **options})


@dataclass(frozen=True)
class Case:
    """One call of the backward: tensors in the layout of the spec, and the same problem batch first."""

    spec: Spec
    q: Tensor
    k: Tensor
    weights: Tensor
    indices: Tensor
    grad: Tensor

    def batch_first(self, tensor: Tensor) -> Tensor:
        return tensor.transpose(0, 1) if self.spec.layout == "SBHD" else tensor

    def reference(self) -> tuple[Tensor, Tensor, Tensor]:
        """dq, dw and dk in float64, batch first."""
        q, k, w = (self.batch_first(t).double() for t in (self.q, self.k, self.weights))
        w = w * self.spec.weight_scale
        valid = (self.indices >= 0) & (self.indices < k.shape[1])
        index = self.indices.long().masked_fill(~valid, 0)
        keys = torch.stack([k[b][index[b]] for b in range(k.shape[0])]).masked_fill(~valid[..., None], 0)
        g = self.grad.double().masked_fill(~valid, 0)
        products = torch.einsum("bshd,bskd->bshk", q, keys)
        gw = torch.where(products > 0, g[:, :, None] * w[..., None], 0)
        dw = (g[:, :, None] * products.clamp(min=0)).sum(-1) * self.spec.weight_scale
        dk = torch.zeros_like(k)
        for b, rows in enumerate(torch.einsum("bshk,bshd->bskd", gw, q)):
            dk[b].index_add_(0, index[b].flatten(), rows.flatten(0, 1))
        return torch.einsum("bshk,bskd->bshd", gw, keys), dw, dk

    def run(self, package: Package, *needs: bool) -> tuple[Tensor | None, ...]:
        found = package.bwd.gradients(self.q, self.k, self.weights, self.indices, self.grad, needs or (True,) * 3)
        return tuple(None if t is None else self.batch_first(t) for t in found)


def make_case(spec: Spec, topk: int, *, integers: bool = False, scale: float = 1.0) -> Case:
    """Random inputs with duplicates and with void columns below and above the keys, whose g holds NaN and inf."""
    generator = torch.Generator("cuda").manual_seed(topk)

    def draw(*shape: int) -> Tensor:
        if integers:
            return torch.randint(-2, 3, shape, generator=generator, device="cuda").float()
        return torch.randn(shape, generator=generator, device="cuda")

    def lay_out(tensor: Tensor) -> Tensor:
        return tensor.transpose(0, 1).contiguous() if spec.layout == "SBHD" else tensor

    dtype = getattr(torch, spec.dtype)
    q = lay_out(draw(BATCH, QUERIES, spec.heads, spec.dim)).to(dtype)
    keys = draw(BATCH, KEYS, spec.dim)
    keys[:, 0] = torch.inf  # never selected: a void column that reads it shows
    indices = torch.randint(1, KEYS, (BATCH, QUERIES, topk), generator=generator, device="cuda", dtype=torch.int32)
    indices[:, ::3, ::5] = -1
    indices[:, 1::7, -1] = KEYS
    indices[:, 2::7, topk // 2] = torch.iinfo(torch.int32).max
    indices[:, 3::11] = -1
    grad = draw(BATCH, QUERIES, topk) * scale
    grad[indices < 0] = torch.nan
    grad[indices >= KEYS] = torch.inf
    return Case(spec, q, lay_out(keys).to(dtype), lay_out(draw(BATCH, QUERIES, spec.heads)), indices, grad)


def error(found: Tensor | None, expected: Tensor) -> float:
    """Relative L2."""
    assert found is not None
    return float((found.double() - expected).norm() / expected.norm().clamp(min=1e-300))


@contextmanager
def reproducible() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.fixture(params=[False, True], ids=["atomic", "fixed point"])
def summing(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Both ways to sum dk."""
    if request.param:
        with reproducible():
            yield True
    else:
        yield False


@pytest.mark.parametrize(("heads", "dim"), SHAPES)
@pytest.mark.parametrize("layout", ["SBHD", "BSHD"])
def test_gradients_are_right(heads: int, dim: int, layout: str, summing: bool, load: Callable[[Spec], Package]) -> None:
    spec = make_spec(heads, dim, layout=layout, dtype="bfloat16")
    for topk in TOPKS:
        case = make_case(spec, topk)
        dq, dw, dk = case.run(load(spec))
        expected = case.reference()
        assert error(dq, expected[0]) <= DQ_BOUND["bfloat16"]
        assert error(dw, expected[1]) <= DW_BOUND
        assert error(dk, expected[2]) <= DK_BOUND["bfloat16"]


def test_integers_are_exact(summing: bool, load: Callable[[Spec], Package]) -> None:
    spec = make_spec(64, 128, layout="SBHD", dtype="bfloat16")
    case = make_case(spec, 65, integers=True)
    dq, dw, dk = case.run(load(spec))
    expected = case.reference()
    assert dq is not None
    torch.testing.assert_close(dq, expected[0].to(torch.bfloat16), rtol=0, atol=0)
    torch.testing.assert_close(dw, expected[1].float(), rtol=0, atol=0)
    # Fixed point has a power of two for its unit: integers of this size are exact in it too.
    torch.testing.assert_close(dk, expected[2].float(), rtol=0, atol=0)


@pytest.mark.parametrize("needs", [n for n in product((True, False), repeat=3) if any(n)])
def test_only_what_is_needed_is_computed(
    needs: tuple[bool, bool, bool], summing: bool, load: Callable[[Spec], Package]
) -> None:
    spec = make_spec(64, 128, layout="SBHD", dtype="bfloat16")
    case = make_case(spec, 65)
    expected = case.reference()
    for found, reference, needed, bound in zip(
        case.run(load(spec), *needs),
        expected,
        needs,
        (DQ_BOUND["bfloat16"], DW_BOUND, DK_BOUND["bfloat16"]),
        strict=True,
    ):
        assert (found is not None) == needed
        if needed:
            assert error(found, reference) <= bound


@pytest.mark.parametrize("scale", [1.0, 5e-7, 1e-20, 1e12])
@pytest.mark.parametrize("weight_scale", [1.0, 0.125])
def test_float16_keeps_gradients_of_any_size(
    scale: float, weight_scale: float, summing: bool, load: Callable[[Spec], Package]
) -> None:
    spec = make_spec(64, 128, layout="BSHD", dtype="float16", weight_scale=weight_scale)
    case = make_case(spec, 130, scale=scale)
    dq, dw, dk = case.run(load(spec))
    expected = case.reference()
    assert error(dw, expected[1]) <= DW_BOUND
    assert error(dk, expected[2]) <= DK_BOUND["float16"]
    if scale == 1:  # dq leaves in float16, which holds no other of these
        assert error(dq, expected[0]) <= DQ_BOUND["float16"]


def test_fixed_point_is_the_same_on_every_run(load: Callable[[Spec], Package]) -> None:
    spec = make_spec(64, 128, layout="SBHD", dtype="bfloat16")
    case = make_case(spec, 200)
    with reproducible():
        first = case.run(load(spec))
        for _ in range(19):
            for one, other in zip(first, case.run(load(spec)), strict=True):
                assert one is not None and other is not None
                assert torch.equal(one.view(torch.uint8), other.view(torch.uint8))


def test_fixed_point_by_the_spec(load: Callable[[Spec], Package]) -> None:
    spec = make_spec(64, 128, layout="SBHD", dtype="bfloat16", backward={"deterministic": True})
    case = make_case(spec, 200)
    (_, _, dk), (_, _, again) = case.run(load(spec)), case.run(load(spec))
    assert dk is not None and again is not None
    assert torch.equal(dk, again)
    assert error(dk, case.reference()[2]) <= DK_BOUND["bfloat16"]


def test_fixed_point_holds_keys_of_any_size(load: Callable[[Spec], Package]) -> None:
    """One key's gradients 1e12 times another's, and one key in every column of every query."""
    spec = make_spec(64, 128, layout="SBHD", dtype="bfloat16")
    case = make_case(spec, 200)
    case.indices[:, :, ::2] = 5
    case.grad[case.indices == 5] = 1e-6
    case.grad[case.indices == 6] *= 1e6
    with reproducible():
        _, _, dk = case.run(load(spec))
    assert dk is not None
    expected = case.reference()[2]
    for key in (5, 6, 7):
        assert error(dk[:, key], expected[:, key]) <= DK_BOUND["bfloat16"]


def test_a_gradient_that_is_not_finite_stays_with_its_key(summing: bool, load: Callable[[Spec], Package]) -> None:
    spec = make_spec(64, 128, layout="SBHD", dtype="bfloat16")
    case = make_case(spec, 65)
    case.indices[0, 4, 7] = 11
    case.grad[0, 4, 7] = torch.nan
    _, _, dk = case.run(load(spec))
    assert dk is not None
    assert not dk[0, 11].isfinite().any()
    others = torch.arange(KEYS, device="cuda") != 11
    assert dk[:, others].isfinite().all() and dk[1:].isfinite().all()


@pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0), reason="needs a Hopper GPU"
)
def test_the_kernel_by_hand_agrees_with_the_general_one(load: Callable[[Spec], Package]) -> None:
    spec = make_spec(64, 128, layout="SBHD", dtype="bfloat16")
    bwd, case = load(spec).bwd, make_case(spec, 200)
    schedule = bwd.SCHEDULES["sm_90a"]
    unused = torch.empty(1, dtype=torch.int32, device="cuda")
    inputs = (*load(spec).fwd.operands(case.q, case.k, case.weights), case.indices, case.grad)
    results = []
    for sizes in ({}, {"block_I": schedule.block_I, "num_threads": schedule.num_threads}):
        kernel = bwd.tl_indexer_bwd_impl(64, 128, 64, target="sm_90a", **sizes)
        outputs = torch.empty_like(case.q), torch.empty_like(case.weights), torch.zeros(case.k.shape, device="cuda")
        kernel(*inputs, *outputs, unused)
        results.append(outputs)
    for by_hand, general in zip(*results, strict=True):
        # Equal but for the order of sums, and for what that turns over in a last rounding.
        assert error(by_hand, general.double()) <= (1e-3 if by_hand.dtype == torch.bfloat16 else 1e-5)
