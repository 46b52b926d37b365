"""The forward's windows: every query once, every visible key, and never more scores than the scratch holds."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from v4gen.generated.tiny import _windows


@settings(max_examples=300, deadline=None)
@given(
    batch=st.integers(1, 80),
    queries=st.integers(1, 60),
    extra_keys=st.integers(0, 20),
    ratio=st.sampled_from([1, 2, 4, 128]),
    offset=st.sampled_from([0, 1, 100, 5000]),
    scratch=st.sampled_from([1, 4, 100, 1000, 5000, 1 << 26]),
)
def test_windows_tile_the_queries_within_the_scratch(
    batch: int, queries: int, extra_keys: int, ratio: int, offset: int, scratch: int
) -> None:
    keys = (offset + queries) // ratio + extra_keys + 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_windows, "SCORE_SCRATCH", scratch)
        size, windows = _windows.windows.__wrapped__(batch, queries, keys, ratio, offset)
    whole_row = _windows.whole_quads(keys)
    covered = []
    for window in windows:
        (first_batch, first_query), (batches, rows, columns) = window.first, window.shape
        assert batches * rows * columns <= size <= max(scratch, whole_row)  # one row is held whatever it takes
        assert columns >= min((offset + first_query + rows) // ratio, keys)
        covered += [(first_batch + b, first_query + t) for b in range(batches) for t in range(rows)]
        buffer = torch.empty(size)
        assert window.of(buffer).is_contiguous() and window.of(buffer).shape == window.shape
    assert sorted(covered) == [(b, t) for b in range(batch) for t in range(queries)]
