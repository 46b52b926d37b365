# torch.cuda is typed in part only.
# mypy: allow-untyped-calls
"""The wrapper on a GPU: graphs, streams, devices, torch.compile, synchronisation, memory and reproducibility."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

from v4gen.run.package import imported_package

pytestmark = pytest.mark.gpu
PACKAGE = Path(__file__).parents[2] / "generated" / "deepseek_v4_flash"
HEADS, DIM, TOPK, RATIO = 64, 128, 512, 4
QUERIES, BATCH = 2302, 2  # 575 keys: more than are selected, and a last window that is not whole
MIB = 1 << 20
SCRATCH = 256 * MIB
SLACK = MIB  # the ranges of visible keys, and what makes them

Inputs = Sequence[Tensor]
Work = Callable[[ModuleType, Inputs], list[Tensor]]


@pytest.fixture(scope="module")
def indexer() -> Iterator[ModuleType]:
    with imported_package(PACKAGE) as package:
        yield package.indexer


def draw(seed: int, queries: int = QUERIES, batch: int = BATCH, device: str = "cuda") -> list[Tensor]:
    """q, k and weights, which want gradients, and the gradient of the scores."""
    generator = torch.Generator(device).manual_seed(seed)
    keys = queries // RATIO
    shapes = (
        (queries, batch, HEADS, DIM),
        (keys, batch, DIM),
        (queries, batch, HEADS),
        (batch, queries, min(TOPK, keys)),
    )
    q, k, weights, grad = (torch.randn(shape, generator=generator, device=device) for shape in shapes)
    return [q.bfloat16().requires_grad_(), k.bfloat16().requires_grad_(), weights.requires_grad_(), grad]


def forward(indexer: ModuleType, tensors: Inputs) -> list[Tensor]:
    """Scores and indices."""
    return list(indexer.lightning_indexer(*tensors[:3]))


def step(indexer: ModuleType, tensors: Inputs) -> list[Tensor]:
    """Scores, indices, dq, dk and dw."""
    *inputs, grad = tensors
    scores, indices = indexer.lightning_indexer(*inputs)
    return [scores, indices, *torch.autograd.grad(scores, inputs, grad)]


def overwrite(tensors: Inputs, values: Inputs) -> None:
    with torch.no_grad():
        for tensor, value in zip(tensors, values, strict=True):
            tensor.copy_(value)


def assert_same_step(indexer: ModuleType, tensors: Inputs, found: Inputs, due: Inputs) -> None:
    """Equal bits, except of dk.

    Atomics add what at most S queries contribute to an element of dk, in any order: two float32 sums of S terms differ
    by at most 2 S 2⁻²⁴ of the terms' magnitudes, which dk at the inputs' absolute values bounds, and bfloat16 then
    rounds them apart by one of its units, 2⁻⁷ of the value.
    """
    for one, other in zip((*found[:3], *found[4:]), (*due[:3], *due[4:]), strict=True):
        assert torch.equal(one, other)
    q, k, weights, grad = (t.detach().abs() for t in tensors)
    k.requires_grad_()
    scores, _ = indexer.lightning_indexer(q, k, weights, topk_indices=due[1])
    (magnitude,) = torch.autograd.grad(scores, [k], grad)
    dk, expected = found[3].double(), due[3].double()
    bound = 2 * q.shape[0] * 2**-24 * (1 + 2**-7) * magnitude.double() + 2**-7 * torch.maximum(dk.abs(), expected.abs())
    assert ((dk - expected).abs() <= bound).all()


@contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextmanager
def no_synchronisation() -> Iterator[None]:
    """Raise where torch would wait for the GPU."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("work", [forward, step])
def test_a_graph_captured_after_one_call_replays_on_other_inputs(indexer: ModuleType, work: Work) -> None:
    static = draw(0)
    work(indexer, static)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = work(indexer, static)
    for seed in (1, 2):
        fresh = draw(seed)
        overwrite(static, fresh)
        graph.replay()
        if work is step:
            assert_same_step(indexer, fresh, captured, step(indexer, fresh))
        else:
            assert all(map(torch.equal, captured, forward(indexer, fresh)))


def test_the_current_stream_is_used(indexer: ModuleType) -> None:
    """Neither waiting for a busy default stream, nor reading what the side stream has not written yet."""
    fresh, static = draw(1), draw(0)
    due = step(indexer, fresh)
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        step(indexer, static)  # so that nothing is left to allocate, which may wait for the GPU
    torch.cuda.synchronize()
    torch.cuda._sleep(4_000_000_000)  # about two seconds
    with torch.cuda.stream(side):
        torch.cuda._sleep(100_000_000)
        overwrite(static, fresh)
        found = [result.clone() for result in step(indexer, static)]
    side.synchronize()
    assert not torch.cuda.default_stream().query()
    torch.cuda.synchronize()
    assert_same_step(indexer, fresh, found, due)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_device_that_is_not_current_is_used(indexer: ModuleType) -> None:
    tensors = draw(0, device="cuda:1")
    with torch.cuda.device(1):
        due = step(indexer, tensors)
    with torch.cuda.device(0):
        found = step(indexer, tensors)
        assert torch.cuda.current_device() == 0
    assert all(t.device == torch.device("cuda:1") for t in found)
    with torch.cuda.device(1):
        assert_same_step(indexer, tensors, found, due)


def test_compiled_is_as_eager(indexer: ModuleType) -> None:
    compiled = torch.compile(indexer.lightning_indexer, fullgraph=True)
    tensors = draw(0)
    *inputs, grad = tensors
    scores, indices = compiled(*inputs)
    found = [scores, indices, *torch.autograd.grad(scores, inputs, grad)]
    assert_same_step(indexer, tensors, found, step(indexer, tensors))


def test_nothing_waits_for_the_gpu(indexer: ModuleType) -> None:
    tensors = draw(0)
    step(indexer, tensors)
    with no_synchronisation():
        step(indexer, tensors)
        indexer.lightning_indexer(*tensors[:3], query_offset=5)


def peak(work: Work, indexer: ModuleType, tensors: Inputs) -> int:
    """The bytes that `work` asks for and holds at its peak, those of its results included."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before: int = torch.cuda.memory_stats()["requested_bytes.all.current"]
    work(indexer, tensors)
    torch.cuda.synchronize()
    most: int = torch.cuda.memory_stats()["requested_bytes.all.peak"]
    return most - before


def size(*tensors: Tensor) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def test_memory_does_not_grow_with_the_score_matrix(indexer: ModuleType) -> None:
    tensors = draw(0, queries=24_576, batch=1)
    q, k, weights, grad = tensors
    assert q.shape[0] * k.shape[0] * 4 > 2 * SCRATCH
    step(indexer, tensors)
    results = 2 * size(grad)  # scores and indices
    assert peak(forward, indexer, tensors) <= results + SCRATCH + SLACK
    gradients = size(q, k, weights) + 2 * size(k)  # dk is summed in float32
    assert peak(step, indexer, tensors) <= results + max(gradients, SCRATCH) + SLACK


def test_slices_of_a_fused_projection_are_read_in_place(indexer: ModuleType) -> None:
    """Their strides are multiples of 16 bytes: no copy is made, and nothing of the result differs."""
    copies = draw(0, queries=1024)
    views = []
    for tensor in copies[:3]:
        rows, batch = tensor.shape[:2]
        width = tensor[0, 0].numel()
        fused = torch.full((rows, batch, width + 16), torch.nan, dtype=tensor.dtype, device="cuda")
        view = fused[..., 8 : 8 + width].unflatten(-1, tensor.shape[2:])
        view.copy_(tensor.detach())
        views.append(view.requires_grad_())
    tensors = [*views, copies[3]]
    assert_same_step(indexer, copies, step(indexer, tensors), step(indexer, copies))
    assert peak(forward, indexer, tensors) < size(copies[0])
    for work in (forward, step):
        assert peak(work, indexer, tensors) == peak(work, indexer, copies)


@pytest.mark.parametrize("mode", [nullcontext, deterministic], ids=["atomics", "deterministic"])
def test_twenty_runs_give_the_same_bits(
    indexer: ModuleType, mode: Callable[[], AbstractContextManager[object]]
) -> None:
    tensors = draw(0)
    with mode():
        first = step(indexer, tensors)
        for _ in range(19):
            again = step(indexer, tensors)
            if mode is deterministic:
                assert all(map(torch.equal, again, first))
            else:
                assert_same_step(indexer, tensors, again, first)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients_the_bits_are_the_same(
    indexer: ModuleType, mode: Callable[[], AbstractContextManager[object]]
) -> None:
    tensors = draw(0)
    due = forward(indexer, tensors)
    with mode():
        found = forward(indexer, tensors)
    assert all(map(torch.equal, found, due))
