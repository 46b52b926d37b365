"""The selection kernel on a GPU: exact on the rows that break selections, and the same on every run."""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from v4gen.run.package import imported_package

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]
GENERATED = Path(__file__).parents[2] / "generated"
REPEATS = 20


@pytest.fixture(scope="module")
def topk() -> Iterator[ModuleType]:
    with imported_package(GENERATED / "deepseek_v4_flash") as package:
        module: ModuleType = package.indexer.tilelang_indexer_topk
        yield module


def rows_of(columns: int) -> torch.Tensor:
    """Adversarial rows [1, S, N]: plateaus, low mantissa bits, outliers, clusters, and all that is not finite."""
    generator = torch.Generator(device="cuda").manual_seed(columns)
    normal = torch.randn(16, columns, generator=generator, device="cuda")
    special = torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0, -0.0], device="cuda")
    one = torch.tensor(1.0, device="cuda").view(torch.int32)
    bits = torch.randint(-(2**31), 2**31, (columns,), generator=generator, device="cuda").to(torch.int32)
    rows = [
        normal[0],
        normal[1].relu(),
        (normal[2] - 2.5).relu(),
        (one + bits.abs() % 100).view(torch.float32),
        -(one + bits.abs() % 5000).view(torch.float32),
        torch.exp(normal[3] * 20) * normal[4].sign(),
        1 + normal[5] * 1e-6,
        torch.full_like(normal[6], torch.nan),
        torch.full_like(normal[6], -torch.inf),
        torch.full_like(normal[6], torch.inf),
        torch.full_like(normal[6], -3.25),
        torch.where(normal[7] < 2, -torch.inf, normal[8]),
        torch.where(bits % 2 == 0, special[bits.abs() % 5], normal[9]),
        (bits % 5).float(),
        (bits % 1000).float() * 1e-43,
        normal[10].sort().values,
        normal[11].sort(descending=True).values,
        bits.view(torch.float32),
    ]
    scores = torch.stack(rows)[None]
    scores[0, 6, columns // 2] = 3e38
    return scores


@pytest.mark.parametrize("columns", [4, 513, 2049, 4097, 16_384, 33_001, 262_144])
@pytest.mark.parametrize("width", [7, 512, 2048, 4096])
def test_selects_as_a_stable_sort_does(topk: ModuleType, columns: int, width: int) -> None:
    scores = rows_of(columns)
    queries = scores.shape[1]
    query = torch.arange(queries, device="cuda")
    starts = (query % 4).to(torch.int32)[None] - 1
    ends = (columns - query % 3).to(torch.int32)[None]
    column = torch.arange(columns, device="cuda")
    hidden = (column < starts[..., None]) | (column >= ends[..., None])
    scores.masked_fill_(hidden, torch.nan)  # what lies out of sight must not matter
    values, indices = topk.select(scores, (starts, ends), width)
    want_values, want_indices = topk.select_by_sorting(scores, starts, ends, width)
    torch.testing.assert_close(indices, want_indices, rtol=0, atol=0)
    torch.testing.assert_close(values, want_values, rtol=0, atol=0, equal_nan=True)


def test_the_same_on_every_run(topk: ModuleType) -> None:
    scores = torch.cat([rows_of(16_384), torch.randn(1, 2000, 16_384, device="cuda")], dim=1)
    starts = torch.zeros(1, scores.shape[1], dtype=torch.int32, device="cuda")
    ends = torch.full_like(starts, scores.shape[2])
    values, indices = topk.select(scores, (starts, ends), 512)
    for _ in range(REPEATS):
        again = topk.select(scores, (starts, ends), 512)
        assert torch.equal(again[1], indices)
        assert torch.equal(again[0].view(torch.int32), values.view(torch.int32))
