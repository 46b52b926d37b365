"""Each of many wrong packages, one textual change to emitted source apiece, fails in a case that the validator names.

A change must apply exactly once, so that an edited template shows here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.mutation.conftest import Emitted, Judge

FWD, BWD, TOPK, INDEXER = (f"tilelang_indexer{part}.py" for part in ("_fwd", "_bwd", "_topk", ""))
OPS, RUNTIME, SELECTION, SORT = "_ops.py", "_runtime.py", "_selection.py", "_block_sort.py"

RARE = 0.01
"""A rare mutant changes some, but less than this share of the rows that the matrix has (`judge.changed_rows`)."""


@dataclass(frozen=True)
class Mutant:
    """One change to one file of a package."""

    name: str
    file: str
    old: str
    new: str
    package: str = "seed"
    rare: bool = False


MUTANTS = (
    # The mask
    Mutant("bound t // r", FWD, "torch.div(position + 1, c", "torch.div(position, c"),
    Mutant("bound one late", FWD, "torch.div(position + 1, c", "torch.div(position + 2, c"),
    Mutant("open window included", FWD, "torch.div(position + 1, c", "torch.div(position + compress_ratio, c"),
    Mutant("last bound one short at N", FWD, "clamp_(max=seq_len_kv)", "clamp_(max=max(seq_len_kv - 1, 0))"),
    Mutant("bound not cut to N", FWD, ".clamp_(max=seq_len_kv)", ""),
    Mutant("mask lets the bound itself through", FWD, "s >= Ends[t]", "s > Ends[t]"),
    Mutant("bound of query 0 for all", FWD, "s >= Ends[t]", "s >= Ends[0]"),
    Mutant("query offset ignored", FWD, "arange(query_offset, query_offset +", "arange(0, 0 +"),
    Mutant("bounds restarted in a window", OPS, "(starts[queries], ends[queries])", "(starts, ends)"),
    Mutant("queries restarted in a window", OPS, "batches.start, queries.start)", "batches.start, 0)"),
    Mutant("run-time ratio ignored", OPS, "_seqlens(S, N, compress_ratio, q", "_seqlens(S, N, 4, q"),
    Mutant("run-time top-k ignored", OPS, "return B, S, N, min(topk, N)", "return B, S, N, min(8, N)"),
    # Scores
    Mutant("relu missing", FWD, "T.if_then_else(x <= 0, T.float32(0), x)", "x"),
    Mutant(
        "relu after the weights",
        FWD,
        "relu(products_by_head[j, i, h]) * w[i, h]",
        "relu(products_by_head[j, i, h] * w[i, h])",
    ),
    Mutant(
        "relu turns NaN to zero",
        FWD,
        "T.if_then_else(x <= 0, T.float32(0), x)",
        "T.if_then_else(x > 0, x, T.float32(0))",
        rare=True,
    ),
    Mutant(
        "keys of sample 0 for all",
        FWD,
        "T.copy(K[s : s + block_N, b, 0:dim], k)",
        "T.copy(K[s : s + block_N, 0, 0:dim], k)",
    ),
    Mutant(
        "last head dropped",
        FWD,
        "w[i, h] = W[T.min(t + i, S - 1), b, h]",
        "w[i, h] = T.if_then_else(h < heads - 1, W[T.min(t + i, S - 1), b, h], T.float32(0))",
    ),
    Mutant("last chunk of dims dropped", FWD, "t + i // heads < S,", "t + i // heads < S and d < dim - 16,"),
    Mutant(
        "tail tile unwritten",
        FWD,
        "T.ceildiv(T.min(last_key, (part + 1) * span), block_N)",
        "T.min(last_key, (part + 1) * span) // block_N",
    ),
    Mutant(
        "first tile skipped",
        FWD,
        "T.max(first_key, part * span) // block_N",
        "T.max(first_key, part * span) // block_N + 1",
    ),
    Mutant(
        "stale tile of keys",
        FWD,
        "                T.copy(K[",
        "                if tile < 256:\n                  T.copy(K[",
        rare=True,
    ),
    Mutant("padding heads counted", FWD, "h < heads, relu(", "h < heads + 2, relu(", "padded", rare=True),
    Mutant("minus zero kept", FWD, "T.if_then_else(is_zero, T.float32(0), score[j, i])", "score[j, i]"),
    Mutant(
        "weights rounded to half",
        OPS,
        "_runtime.kernel_input(weights, torch.float32)",
        "_runtime.kernel_input(weights.to(q.dtype), torch.float32)",
    ),
    Mutant(
        "narrow weights refused",
        FWD,
        "_runtime.check_tensor(names[2], weights, (S, B, HEADS), (torch.float32, DTYPE), q)",
        "_runtime.check_tensor(names[2], weights, (S, B, HEADS), (torch.float32,), q)",
    ),
    Mutant("inputs not widened", RUNTIME, "tensor.detach().to(dtype).contiguous()", "tensor.detach().contiguous()"),
    Mutant("strides ignored", RUNTIME, ".to(dtype).contiguous()", ".to(dtype)"),
    Mutant(
        "weight scale ignored",
        FWD,
        "W[b, T.min(t + i, S - 1), h] * WEIGHT_SCALE",
        "W[b, T.min(t + i, S - 1), h]",
        "operator",
    ),
    Mutant("batch and sequence exchanged", FWD, "B, S = q.shape[:2]", "S, B = q.shape[:2]", "operator"),
    Mutant(
        "products cut at float16's range",
        FWD,
        "T.if_then_else(x <= 0, T.float32(0), x)",
        "T.if_then_else(x <= 0, T.float32(0), T.if_then_else(x > 65504, T.float32(65504), x))",
        rare=True,
    ),
    Mutant(
        "mask of the first 4096 keys only",
        FWD,
        "for tile in T.serial(T.ceildiv(N, block_K)):",
        "for tile in T.serial(1):",
        rare=True,
    ),
    # Selection
    Mutant(
        "tie to the highest index",
        SORT,
        "scattered[first + m] > mine",
        "(scattered[first + m] ^ T.int64(LAST_COLUMN)) > (mine ^ T.int64(LAST_COLUMN))",
    ),
    Mutant("NaN ranked low", SORT, "> INFINITY, NAN_KEY, bits", "> INFINITY, LOWEST_KEY, bits", rare=True),
    Mutant("last candidate missed", SELECTION, "total = T.max(end - start, 0)", "total = T.max(end - start - 1, 0)"),
    Mutant(
        "candidates at the bound missed",
        SELECTION,
        "score[j * 4 + c] < threshold,",
        "score[j * 4 + c] <= threshold,",
        rare=True,
    ),
    Mutant(
        "first 8192 keys only",
        SELECTION,
        "T.min(Ends[query], columns)",
        "T.min(Ends[query], T.min(columns, 8192))",
        rare=True,
    ),
    Mutant("crowds sorted ascending", SORT, "if (other > mine) == ", "if (other < mine) == ", rare=True),
    Mutant("void columns left unwritten", SELECTION, "elif column < width:", "elif column < wanted:"),
    Mutant(
        "int64 indices",
        OPS,
        "indices = torch.empty((B, S, width), dtype=torch.int32, device=q.device)\n    if",
        "indices = torch.empty((B, S, width), dtype=torch.int64, device=q.device)\n    if",
    ),
    Mutant(
        "order by index left out",
        SELECTION,
        "tx, wanted, wanted, column_key",
        "tx, T.min(wanted, 1), T.min(wanted, 1), column_key",
        "operator",
    ),
    Mutant("width cut to N", OPS, "return B, S, N, topk\n", "return B, S, N, min(topk, N)\n", "operator"),
    Mutant(
        "void columns first",
        TOPK,
        "kernel(in_quads(scores), starts.contiguous(), ends.contiguous(), *results, columns)",
        "kernel(in_quads(scores), starts.contiguous(), ends.contiguous(), *results, columns)"
        "; order = (indices >= 0).long().argsort(dim=-1, stable=True)"
        "; values.copy_(values.gather(-1, order)); indices.copy_(indices.gather(-1, order))",
        "operator",
    ),
    # Given indices
    Mutant("given indices not masked", TOPK, " & (indices < ends[:, None])", ""),
    Mutant("given -1 not masked", TOPK, "(indices >= starts[:, None]) & ", ""),
    # Gradients
    Mutant("gate open at zero", BWD, "T.if_then_else(products[i, h] > 0, g", "T.if_then_else(products[i, h] >= 0, g"),
    Mutant(
        "void gradient leaks to key 0",
        BWD,
        "-1)\n                    g[i] = T.if_then_else(valid, G[b, t, j], T.float32(0))",
        "0)\n                    g[i] = G[b, t, j]",
    ),
    Mutant("index past N not void", BWD, " and Indices[b, t, j] < N", ""),
    Mutant(
        "void index becomes key 0",
        BWD,
        "T.if_then_else(valid, Indices[b, t, j], -1)",
        "T.if_then_else(valid, Indices[b, t, j], 0)",
        rare=True,
    ),
    Mutant(
        "key of a void index read",
        BWD,
        "T.if_then_else(index[i] >= 0, K[T.max(index[i], 0), b, d], T.cast(0, dtype))",
        "K[T.max(index[i], 0), b, d]",
        rare=True,
    ),
    Mutant("dq restarted in each tile", BWD, "clear_accum=False", "clear_accum=True", rare=True),
    Mutant(
        "dw of the last tile only",
        BWD,
        "g_relu[i, h] = g_relu[i, h] + ",
        "g_relu[i, h] = ",
        rare=True,
    ),
    Mutant(
        "first tile of columns again",
        BWD,
        "j = T.min(tile * block_I + i, topk - 1)",
        "j = T.min(i, topk - 1)",
        rare=True,
    ),
    Mutant(
        "first tile of columns only",
        BWD,
        "valid = tile * block_I + i < topk",
        "valid = tile == 0 and i < topk",
        rare=True,
    ),
    Mutant("dw misses a head", BWD, "dW[t, b, h] = dw[h]", "dW[t, b, T.min(h, heads - 2)] = dw[h]"),
    Mutant(
        "dk rounded in each tile",
        BWD,
        "T.atomic_add(dK[index[i], b, d], dk[i, d])",
        "T.atomic_add(dK[index[i], b, d], T.reinterpret(T.reinterpret(dk[i, d], INT32) & -65536, FP32))",
    ),
    Mutant("dk overwritten", BWD, "T.atomic_add(dK[index[i], b, d], dk[i, d])", "dK[index[i], b, d] = dk[i, d]"),
    Mutant("dk started from garbage", BWD, "torch.zeros(k.shape,", "torch.empty(k.shape,"),
    Mutant("dq in float32", BWD, "dq.to(q.dtype) if needs_q", "dq if needs_q"),
    Mutant(
        "second derivative computed",
        OPS,
        'torch.library.register_autograd(f"{NAMESPACE}::gradients", _no_second_derivative, lib=_library)',
        "",
    ),
    # Arguments
    Mutant("shapes unchecked", RUNTIME, "if not matches:", "if False:"),
    Mutant("argument not named", RUNTIME, "`{name}` must have shape", "an argument must have shape"),
)


def test_there_are_enough_mutants() -> None:
    assert len(MUTANTS) >= 30
    assert sum(mutant.rare for mutant in MUTANTS) >= 10
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_caught(
    mutant: Mutant,
    emitted: dict[str, Emitted],
    judge: Judge,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    original = emitted[mutant.package]
    source = (original.folder / mutant.file).read_text(encoding="utf-8")
    assert source.count(mutant.old) == 1
    changed = original.changed(tmp_path / "mutant", mutant.file, source.replace(mutant.old, mutant.new))
    verdict = judge(changed, original.spec, original.folder if mutant.rare else None)
    assert not verdict.passed
    share = ""
    if mutant.rare:
        assert verdict.rows is not None
        rows, total = verdict.rows
        share = f" ({rows} of {total} rows)"
        assert 0 < rows < RARE * total
    record_property("mutation", f"{mutant.name}{share} -> {verdict.case}: {verdict.seen}")


@pytest.mark.parametrize(("name", "runs"), [("seed", 3), ("padded", 1), ("operator", 1)])
def test_the_true_package_passes_every_time(name: str, runs: int, emitted: dict[str, Emitted], judge: Judge) -> None:
    for _ in range(runs):
        verdict = judge(emitted[name].folder, emitted[name].spec)
        assert verdict.passed, verdict
