"""The selection kernel on the CPU against a stable sort: every stage of it, on the rows that break selections."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import example, given, settings

from v4gen.read.spec import Spec
from v4gen.run.package import Package, imported_package

GENERATED = Path(__file__).parents[2] / "generated"
INF = float("inf")
NAN = float("nan")

# So small that rows of a few hundred keys pass through every stage: bound, narrowing by keys and by columns, bins and
# the sorting network.
SMALL = {"widest": 32, "capacity": 64, "bins": 16, "crowd": 8, "threads": 1, "values": 32, "min_blocks": 1}
# As on GPUs with little shared memory: room for no more candidates than are wanted.
TIGHT = {**SMALL, "capacity": 32}

Row = Callable[[int, torch.Generator], torch.Tensor]


def normal(columns: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(columns, generator=generator)


def low_bits(columns: int, generator: torch.Generator, values: int = 100) -> torch.Tensor:
    """Scores that differ only in the lowest bits of the mantissa."""
    one = torch.tensor(1.0).view(torch.int32)
    return (one + torch.randint(0, values, (columns,), generator=generator, dtype=torch.int32)).view(torch.float32)


def mixed(columns: int, generator: torch.Generator) -> torch.Tensor:
    """NaN, both infinities, both zeros and ordinary scores."""
    special = torch.tensor([NAN, INF, -INF, 0.0, -0.0])
    draw = torch.randint(0, 10, (columns,), generator=generator)
    return torch.where(draw < 5, special[draw % 5], normal(columns, generator))


def with_values(base: Row, *values: float) -> Row:
    """`base` with a few elements replaced."""

    def row(columns: int, generator: torch.Generator) -> torch.Tensor:
        scores = base(columns, generator)
        for i, value in enumerate(values, 1):
            scores[i * columns // (len(values) + 1)] = value
        return scores

    return row


ROWS: dict[str, Row] = {
    "normal": normal,
    "plateau of zeros": lambda n, g: normal(n, g).relu(),
    "fewer positive scores than wanted": lambda n, g: (normal(n, g) - 2.5).relu(),
    "low mantissa bits": low_bits,
    "negative, low mantissa bits": lambda n, g: -low_bits(n, g, 3000),
    "dynamic range": lambda n, g: torch.exp(normal(n, g) * 20) * normal(n, g).sign(),
    "outliers": with_values(normal, 1e38, -1e38),
    "outlier above a cluster": with_values(lambda n, g: 1 + normal(n, g) * 1e-6, 3e38),
    "infinities": with_values(normal, INF, -INF, INF),
    "largest and lowest float": with_values(normal, 3.4028234e38, -3.4028234e38),
    "all NaN": lambda n, g: torch.full((n,), NAN),
    "NaN of either sign": lambda n, g: torch.where(normal(n, g) > 0, torch.tensor(NAN), torch.tensor(-NAN)),
    "all -inf": lambda n, g: torch.full((n,), -INF),
    "all +inf": lambda n, g: torch.full((n,), INF),
    "mostly -inf": lambda n, g: torch.where(normal(n, g) < 2, torch.tensor(-INF), normal(n, g)),
    "all equal": lambda n, g: torch.full((n,), -3.25),
    "zeros of either sign": lambda n, g: torch.where(normal(n, g) > 0, 0.0, -0.0),
    "a few values": lambda n, g: torch.randint(0, 5, (n,), generator=g).float(),
    "subnormal": lambda n, g: torch.randint(-1000, 1000, (n,), generator=g).float() * 1e-43,
    "ascending": lambda n, g: normal(n, g).sort().values,
    "descending": lambda n, g: normal(n, g).sort(descending=True).values,
    "periodic": lambda n, g: normal(n, g) + 5 * (torch.arange(n) % 4 == 0),
    "mixed": mixed,
    "any bits": lambda n, g: torch.randint(-(2**31), 2**31, (n,), generator=g).to(torch.int32).view(torch.float32),
}


@pytest.fixture(scope="module")
def topk() -> Iterator[ModuleType]:
    """The selection module of a package, its schedule for narrow rows replaced by a small one."""
    with imported_package(GENERATED / "tiny") as package:
        module: ModuleType = package.indexer.tilelang_indexer_topk
        yield module


@pytest.fixture(scope="module")
def small(topk: ModuleType) -> Iterator[ModuleType]:
    schedules = topk.SCHEDULES["cpu"]
    topk.SCHEDULES["cpu"] = (topk.SelectSchedule(**SMALL), *schedules)
    yield topk
    topk.SCHEDULES["cpu"] = schedules


@pytest.fixture(scope="module")
def tight(load: Callable[[Spec], Package]) -> ModuleType:
    """The selection module of a package with the tight schedule alone."""
    spec = Spec(schema="v4gen/1", name="tight", heads=4, dim=32, topk=8, compress_ratio=4)
    module: ModuleType = load(spec).indexer.tilelang_indexer_topk
    module.SCHEDULES["cpu"] = (module.SelectSchedule(**TIGHT),)
    return module


@pytest.fixture(scope="module")
def by_index(load: Callable[[Spec], Package]) -> ModuleType:
    """The selection module of a package that orders by index, with the small schedule alone."""
    spec = Spec(schema="v4gen/1", name="by_index", heads=4, dim=32, topk=8, compress_ratio=4, order="index")
    module: ModuleType = load(spec).indexer.tilelang_indexer_topk
    module.SCHEDULES["cpu"] = (module.SelectSchedule(**SMALL),)
    return module


def assert_selects(topk: Any, scores: torch.Tensor, starts: list[int], ends: list[int], width: int) -> None:
    """Hold `select` on scores [B, S, N] against the stable sort, bits of the values included."""
    ranges = torch.tensor([starts], dtype=torch.int32), torch.tensor([ends], dtype=torch.int32)
    values, indices = topk.select(scores, ranges, width)
    want_values, want_indices = topk.select_by_sorting(scores, *ranges, width)
    torch.testing.assert_close(indices, want_indices, rtol=0, atol=0)
    torch.testing.assert_close(values, want_values, rtol=0, atol=0, equal_nan=True)
    assert not (values.signbit() & (values == 0)).any()
    assert values.dtype == torch.float32 and indices.dtype == torch.int32


@pytest.mark.parametrize("name", ROWS)
def test_selects_as_a_stable_sort_does(small: ModuleType, name: str) -> None:
    generator = torch.Generator().manual_seed(7)
    for columns in (1, 31, 64, 65, 129, 700, 4096):
        row = ROWS[name](columns, generator)
        scores = torch.stack([row, row.flip(0), row.roll(1), row, row, row])[None]
        starts = [0, 0, 3, columns // 2 + 1, 5, -7]
        ends = [columns, columns - 3, columns - 2, columns, 2, columns + 9]
        for width in (1, 7, 32):
            assert_selects(small, scores, starts, ends, width)


@pytest.mark.parametrize("name", ROWS)
def test_narrows_until_no_more_are_left_than_are_wanted(tight: ModuleType, name: str) -> None:
    generator = torch.Generator().manual_seed(8)
    for columns in (33, 65, 700):
        row = ROWS[name](columns, generator)
        scores = torch.stack([row, row.flip(0), row])[None]
        for width in (7, 31, 32):
            assert_selects(tight, scores, [0, 0, 5], [columns, columns - 1, columns - 2], width)


@pytest.mark.parametrize("width", [1, 2, 4, 7, 8, 31, 32])
def test_visible_keys_about_the_width_and_the_capacity(small: ModuleType, width: int) -> None:
    generator = torch.Generator().manual_seed(width)
    ends = sorted({0, 1, width - 1, width, width + 1, 63, 64, 65, 66})
    scores = torch.randn(2, len(ends), 68, generator=generator)
    assert_selects(small, scores, [0] * len(ends), ends, width)


def test_keys_out_of_sight_are_not_looked_at(small: ModuleType) -> None:
    scores = torch.randn(1, 3, 400, generator=torch.Generator().manual_seed(1))
    starts, ends = [10, 0, 201], [390, 70, 399]
    for query, (start, end) in enumerate(zip(starts, ends, strict=True)):
        scores[0, query, :start] = NAN
        scores[0, query, end:] = INF
    assert_selects(small, scores, starts, ends, 32)
    ranges = torch.tensor([starts], dtype=torch.int32), torch.tensor([ends], dtype=torch.int32)
    assert small.select(scores, ranges, 32)[0].isfinite().all()


@pytest.mark.parametrize("width", [512, 513, 2048, 2049, 4096])
def test_the_schedules_of_the_package(topk: ModuleType, width: int) -> None:
    generator = torch.Generator().manual_seed(width)
    scores = torch.stack([normal(9000, generator), normal(9000, generator).relu(), mixed(9000, generator)])[None]
    assert_selects(topk, scores, [0, 1, 2], [9000, 9000, 8999], width)


@pytest.mark.parametrize("view", ["sliced", "shifted", "transposed", "expanded"])
def test_scores_that_are_not_in_quads_are_copied(small: ModuleType, view: str) -> None:
    whole = torch.randn(2, 6, 303, generator=torch.Generator().manual_seed(3))
    scores = {
        "sliced": whole[:, 1:5, 2:300],
        "shifted": whole.flatten()[1 : 1 + 2 * 4 * 300].view(2, 4, 300),
        "transposed": whole[:, :4].transpose(1, 2).contiguous().transpose(1, 2),
        "expanded": whole[:1, :4].expand(3, 4, 303),
    }[view]
    assert_selects(small, scores, [0] * 4, [scores.shape[-1]] * 4, 9)


@pytest.mark.parametrize("shape", [(0, 3, 8), (2, 0, 8), (2, 3, 0), (70_000, 1, 4)])
def test_sizes_at_the_edge(small: ModuleType, shape: tuple[int, int, int]) -> None:
    scores = torch.randn(shape, generator=torch.Generator().manual_seed(4))
    assert_selects(small, scores, [0] * shape[1], [shape[2]] * shape[1], 5)


FLOATS = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 3.4028234663852886e38, 1e-45]), st.floats(width=32)
)


@pytest.mark.parametrize("name", ["normal", "plateau of zeros", "mixed", "all NaN", "any bits"])
def test_order_by_index(by_index: ModuleType, name: str) -> None:
    generator = torch.Generator().manual_seed(5)
    for columns in (31, 65, 700):
        row = ROWS[name](columns, generator)
        scores = torch.stack([row, row.flip(0), row])[None]
        for width in (1, 32):
            assert_selects(by_index, scores, [0, 3, 1], [columns, columns - 3, columns - 1], width)


@settings(deadline=None, max_examples=150)
@given(
    values=st.lists(FLOATS, min_size=1, max_size=12),
    columns=st.integers(1, 300),
    start=st.integers(-3, 300),
    length=st.integers(0, 300),
    width=st.integers(1, 32),
    seed=st.integers(0, 2**32),
)
@example(values=[0.0], columns=300, start=0, length=300, width=32, seed=0)
@example(values=[NAN, -INF], columns=200, start=1, length=198, width=32, seed=1)
def test_any_row(
    small: ModuleType, values: list[float], columns: int, start: int, length: int, width: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    row = torch.tensor(values)[torch.randint(0, len(values), (columns,), generator=generator)]
    assert_selects(small, row[None, None], [start], [start + length], width)
