"""Measures the host time of a forward call of a V4 package: `python docs/host_time.py PACKAGE RECORD`. Needs a GPU.

The queries are few, so that the GPU is done before the host: what a call takes is what the host takes. Launching the
same two kernels with the same arguments, and nothing else, is measured beside it.
"""

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from v4gen.run.package import Package, imported_package
from v4gen.run.record import make_record, write_record

QUERIES = 128
BURSTS, CALLS = 31, 60


def forward_and_launches(package: Package) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """A forward call without gradients, and the launches of its kernels alone."""
    import torch

    fwd, indexer = package.fwd, package.indexer
    selection, ratio = indexer.tilelang_indexer_topk, indexer.COMPRESS_RATIO
    keys = QUERIES // ratio
    q = torch.randn(QUERIES, 1, fwd.HEADS, fwd.DIM, device="cuda").to(fwd.DTYPE)
    k = torch.randn(keys, 1, fwd.DIM, device="cuda").to(fwd.DTYPE)
    weights = torch.randn(QUERIES, 1, fwd.HEADS, device="cuda")
    window = torch.empty(1, QUERIES, keys, device="cuda")
    results = selection.select(window, None, min(keys, indexer.TOPK), 0, ratio)
    target, unused = package.indexer._runtime.target_for(q.device), fwd._runtime.placeholder(q.device)
    parts = fwd.share_out(1, QUERIES, keys, target, fwd._runtime.processors(q.device))
    scores = partial(fwd.scores_kernel(target, True), q, k, weights, unused, unused, window, 0, 0, 0, ratio, *parts)
    select = partial(
        selection.select_kernel(results[0].shape[-1], target, True),
        *(selection.in_quads(window), unused, unused, *results, keys, QUERIES, 0, 0, 0, ratio),
    )
    return partial(indexer.lightning_indexer, q, k, weights), lambda: (scores(), select())


def host_us(call: Callable[[], Any]) -> float:
    """The median of many bursts, in µs a call, the GPU idle before each."""
    import torch

    found = []
    for _ in range(BURSTS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        found.append((time.perf_counter() - start) / CALLS * 1e6)
    torch.cuda.synchronize()
    return statistics.median(found)


def main() -> None:
    folder, record = map(Path, sys.argv[1:])
    with imported_package(folder) as package:
        calls = forward_and_launches(package)
        for call in calls:
            host_us(call)
        forward, launches = map(host_us, calls)
    data = {"queries": QUERIES, "forward_us": forward, "launches_us": launches, "beyond_us": forward - launches}
    command = ["python", "docs/host_time.py", folder.as_posix(), record.as_posix()]
    write_record(record, make_record("host_time", data, "cuda", folder, command))


if __name__ == "__main__":
    main()
