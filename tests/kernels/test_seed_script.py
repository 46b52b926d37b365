"""A script written against the hand-written modules runs after changing only the import path."""

import subprocess
import sys
from pathlib import Path

# Every name of the seed interface, called with the seed's argument order, on CPU tensors. Integers: results are exact.
SCRIPT = """
import torch

from v4gen.generated.deepseek_v4_flash.reference import reference_indexer
from v4gen.generated.deepseek_v4_flash.tilelang_indexer import (
    V4IndexerFunction,
    pytorch_extract_topk_scores,
    v4_lighting_indexer,
)
from v4gen.generated.deepseek_v4_flash.tilelang_indexer_bwd import (
    BF16,
    FP32,
    INT32,
    batched_indexer_bwd,
    indexer_bwd_interface,
    pass_configs,
    tl_indexer_bwd_impl,
)
from v4gen.generated.deepseek_v4_flash.tilelang_indexer_fwd import (
    _make_causal_cu_seqlens,
    batched_indexer_fwd,
    clean_logits_,
    indexer_fwd_interface,
    tl_indexer_fwd_impl,
)

S, B, H, D, N, ratio, topk = 42, 2, 64, 128, 10, 4, 512
generator = torch.Generator().manual_seed(0)
draw = lambda low, *shape: torch.randint(-low, low + 1, shape, generator=generator)
q = draw(2, S, B, H, D).bfloat16().requires_grad_()
k = draw(2, N, B, D).bfloat16().requires_grad_()
w = draw(3, S, B, H).float().requires_grad_()

# forward and backward, as a training step runs them
scores, indices = v4_lighting_indexer(q, k, w, ratio, topk)
assert scores.shape == indices.shape == (B, S, N)
assert (scores.dtype, indices.dtype) == (torch.float32, torch.int32)
grad = draw(2, B, S, N).float()
scores.backward(grad)

exact = [t.detach().double().requires_grad_() for t in (q, k, w)]
expected, expected_indices = reference_indexer(*exact)
assert torch.equal(scores.double(), expected) and torch.equal(indices, expected_indices)
expected.backward(grad.double().masked_fill(indices < 0, 0))
for found, due in zip((q, k, w), exact):
    assert torch.equal(found.grad, due.grad.to(found.dtype)) and found.grad.dtype == found.dtype

# the autograd function, and indices that are given
again = V4IndexerFunction.apply(q, k, w, ratio, topk)
given = V4IndexerFunction.apply(q, k, w, ratio, 1, indices[..., :5].contiguous())
assert torch.equal(again[0], scores) and torch.equal(given[0], scores[..., :5])

# low level, forward: a batch and one sample
starts, ends = _make_causal_cu_seqlens(S, N, ratio, q.device)
logits = batched_indexer_fwd(q.detach(), k.detach(), w.detach(), starts, ends)
one = indexer_fwd_interface(q[:, 1].detach(), k[:, 1].detach(), w[:, 1].detach(), starts, ends)
raw = indexer_fwd_interface(q[:, 1].detach(), k[:, 1].detach(), w[:, 1].detach(), starts, ends, clean_logits=False)
assert logits.shape == (B, S, N) and torch.equal(logits[1], one)
assert not raw.isnan().any()
assert torch.equal(pytorch_extract_topk_scores(logits, indices, dim=-1), scores)

# low level, backward: masked indices are void, whatever their gradient
grad = grad.masked_fill(indices < 0, torch.nan)
dq, dw, dk = batched_indexer_bwd(q.detach(), w.detach(), k.detach(), indices, grad)
assert torch.equal(dq, q.grad) and torch.equal(dw, w.grad) and torch.equal(dk.bfloat16(), k.grad)
assert dk.dtype == torch.float32
sample = indexer_bwd_interface(q[:, 1].detach(), w[:, 1].detach(), k[:, 1].detach(), indices[1], grad[1])
assert all(torch.equal(found, due[:, 1]) for found, due in zip(sample, (dq, dw, dk)))

# the compiled kernels, made with the seed's arguments
assert (BF16, FP32, INT32) == ("bfloat16", "float32", "int32") and pass_configs
for kernel in (tl_indexer_fwd_impl(H, D), clean_logits_(), tl_indexer_bwd_impl(H, D, topk)):
    assert callable(kernel)
for make, sizes in ((tl_indexer_fwd_impl, (H, 64)), (tl_indexer_bwd_impl, (32, D, topk))):
    try:
        make(*sizes)
    except ValueError as error:
        assert all(str(size) in str(error) for size in (H, D, *sizes[:2]))
    else:
        raise AssertionError("other sizes were accepted")
print("done")
"""


def test_a_script_for_the_seed_runs_unchanged(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("done\n")
