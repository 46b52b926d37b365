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
MASK, OPS, RUNTIME = "_mask.py", "_ops.py", "_runtime.py"
SCORES, SELECTION, SORT, BACKWARD = "_scores.py", "_selection.py", "_block_sort.py", "_backward.py"

TRUE_RUNS = 20
"""Of the unchanged packages, all together: none may fail."""

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
    Mutant("bound t // r", SELECTION, "query_offset + t + 1, c", "query_offset + t, c"),
    Mutant("bound one late", SELECTION, "query_offset + t + 1, c", "query_offset + t + 2, c"),
    Mutant("bound of the matrix one late", FWD, "first = query_offset + 1", "first = query_offset + 2"),
    Mutant("open window included", SELECTION, "query_offset + t + 1, c", "query_offset + t + compress_ratio, c"),
    Mutant("last bound one short at N", FWD, "clamp_(max=seq_len_kv)", "clamp_(max=max(seq_len_kv - 1, 0))"),
    Mutant("mask lets the bound itself through", SCORES, "s >= Ends[row, t]", "s > Ends[row, t]"),
    Mutant("bound of query 0 for all", SCORES, "s >= Ends[row, t]", "s >= Ends[row, 0]"),
    Mutant("query offset ignored", SELECTION, "query_offset + t + 1, c", "t + 1, c"),
    Mutant("last query of a tile not counted", SCORES, "T.min(t + block_Q, S), c", "T.min(t, S), c"),
    Mutant("bounds restarted in a window", SELECTION, "t = first_query + T.truncmod", "t = T.truncmod"),
    Mutant(
        "queries restarted in a window",
        OPS,
        "write_scores(*inputs, None, window_scores, *window.first, *reach)",
        "write_scores(*inputs, None, window_scores, window.first_batch, 0, *reach)",
    ),
    Mutant("run-time ratio ignored", OPS, "reach = (query_offset, compress_ratio)", "reach = (query_offset, 4)"),
    Mutant("run-time top-k ignored", OPS, "min(topk, N)", "min(8, N)"),
    # Scores
    Mutant("relu missing", SCORES, "T.if_then_else(x <= 0, T.float32(0), x)", "x"),
    Mutant(
        "relu after the weights",
        SCORES,
        "relu(products_by_head[j, i, h]) * w[i, h]",
        "relu(products_by_head[j, i, h] * w[i, h])",
    ),
    Mutant(
        "relu turns NaN to zero",
        SCORES,
        "T.if_then_else(x <= 0, T.float32(0), x)",
        "T.if_then_else(x > 0, x, T.float32(0))",
        rare=True,
    ),
    Mutant(
        "keys of sample 0 for all",
        SCORES,
        "T.copy(K[s : s + block_N, b, 0:dim], k)",
        "T.copy(K[s : s + block_N, 0, 0:dim], k)",
    ),
    Mutant(
        "last head dropped",
        SCORES,
        "w[i, h] = W[T.min(t + i, S - 1), b, h]",
        "w[i, h] = T.if_then_else(h < heads - 1, W[T.min(t + i, S - 1), b, h], T.float32(0))",
    ),
    Mutant("last chunk of dims dropped", SCORES, "t + i // heads < S,", "t + i // heads < S and d < dim - 16,"),
    Mutant(
        "tail tile unwritten",
        SCORES,
        "T.ceildiv(last_key, block_N)",
        "last_key // block_N",
    ),
    Mutant(
        "first tile skipped",
        SCORES,
        "first_own = first_tile + part * part_tiles",
        "first_own = first_tile + part * part_tiles + 1",
    ),
    Mutant(
        "stale tile of keys",
        SCORES,
        "                T.copy(K[",
        "                if tile < 256:\n                  T.copy(K[",
        rare=True,
    ),
    Mutant("padding heads counted", SCORES, "h < heads, relu(", "h < heads + 2, relu(", "padded", rare=True),
    Mutant("minus zero kept", SCORES, "T.if_then_else(is_zero, T.float32(0), score[j, i])", "score[j, i]"),
    Mutant(
        "weights rounded to half",
        FWD,
        "_runtime.kernel_input(weights, torch.float32,",
        "_runtime.kernel_input(weights.to(q.dtype), torch.float32,",
    ),
    Mutant(
        "narrow weights refused",
        FWD,
        "_runtime.check_tensor(names[2], weights, q.shape[:-1], (torch.float32, DTYPE), q)",
        "_runtime.check_tensor(names[2], weights, q.shape[:-1], (torch.float32,), q)",
    ),
    Mutant(
        "inputs not widened", RUNTIME, "tensor.detach().to(torch.float32).contiguous()", "tensor.detach().contiguous()"
    ),
    Mutant(
        "strides ignored",
        RUNTIME,
        "tensor.detach().to(torch.float32).contiguous()",
        "tensor.detach().to(torch.float32)",
    ),
    Mutant(
        "weight scale ignored",
        SCORES,
        "W[b, T.min(t + i, S - 1), h] * WEIGHT_SCALE",
        "W[b, T.min(t + i, S - 1), h]",
        "operator",
    ),
    Mutant(
        "batch and sequence exchanged",
        FWD,
        "return q.shape[0], q.shape[1], k.shape[1]",
        "return q.shape[1], q.shape[0], k.shape[1]",
        "operator",
    ),
    Mutant(
        "products cut at float16's range",
        SCORES,
        "T.if_then_else(x <= 0, T.float32(0), x)",
        "T.if_then_else(x <= 0, T.float32(0), T.if_then_else(x > 65504, T.float32(65504), x))",
        rare=True,
    ),
    Mutant(
        "mask of the first 4096 keys only",
        SCORES,
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
        "query_offset + t + 1, compress_ratio), columns)",
        "query_offset + t + 1, compress_ratio), T.min(columns, 8192))",
        rare=True,
    ),
    Mutant("crowds sorted ascending", SORT, "if (other > mine) == ", "if (other < mine) == ", rare=True),
    Mutant("void columns left unwritten", SELECTION, "elif column < width:", "elif column < wanted:"),
    Mutant(
        "int64 indices",
        OPS,
        "result[place] = part\n    return scores, indices",
        "result[place] = part\n    return scores, indices.long()",
    ),
    Mutant(
        "order by index left out",
        SELECTION,
        "tx, wanted, wanted, column_key",
        "tx, T.min(wanted, 1), T.min(wanted, 1), column_key",
        "operator",
    ),
    Mutant("width cut to N", OPS, "width = topk if", "width = min(topk, k.shape[1]) if", "operator"),
    Mutant(
        "void columns first",
        TOPK,
        "kernel(in_quads(scores), starts, ends, values, indices, *sizes, query_offset, compress_ratio)",
        "kernel(in_quads(scores), starts, ends, values, indices, *sizes, query_offset, compress_ratio)"
        "; order = (indices >= 0).long().argsort(dim=-1, stable=True)"
        "; values.copy_(values.gather(-1, order)); indices.copy_(indices.gather(-1, order))",
        "operator",
    ),
    # Given indices
    Mutant("given indices not masked", TOPK, " & (indices < ends.unsqueeze(-1))", ""),
    Mutant("given index before the range not masked", TOPK, "(indices >= starts.unsqueeze(-1)) & ", "", "ranges"),
    # Gradients
    Mutant(
        "gate open at zero", BACKWARD, "T.if_then_else(products[i, h] > 0, g", "T.if_then_else(products[i, h] >= 0, g"
    ),
    Mutant(
        "void gradient leaks to key 0",
        BACKWARD,
        "-1)\n                    g[i] = T.if_then_else(valid, G[b, t, j], T.float32(0))",
        "0)\n                    g[i] = G[b, t, j]",
    ),
    Mutant("index past N not void", BACKWARD, " and Indices[b, t, j] < N", ""),
    Mutant(
        "void index becomes key 0",
        BACKWARD,
        "T.if_then_else(valid, Indices[b, t, j], -1)",
        "T.if_then_else(valid, Indices[b, t, j], 0)",
        rare=True,
    ),
    Mutant(
        "key of a void index read",
        BACKWARD,
        "T.if_then_else(index[i] >= 0, K[T.max(index[i], 0), b, d], T.cast(0, dtype))",
        "K[T.max(index[i], 0), b, d]",
        rare=True,
    ),
    Mutant("dq restarted in each tile", BACKWARD, "clear_accum=False", "clear_accum=True", rare=True),
    Mutant(
        "dw of the last tile only",
        BACKWARD,
        "g_relu[i, h] = g_relu[i, h] + ",
        "g_relu[i, h] = ",
        rare=True,
    ),
    Mutant(
        "first tile of columns again",
        BACKWARD,
        "j = T.min(tile * block_I + i, topk - 1)",
        "j = T.min(i, topk - 1)",
        rare=True,
    ),
    Mutant(
        "first tile of columns only",
        BACKWARD,
        "valid = tile * block_I + i < topk",
        "valid = tile == 0 and i < topk",
        rare=True,
    ),
    Mutant("dw misses a head", BACKWARD, "dW[t, b, h] = dw[h]", "dW[t, b, T.min(h, heads - 2)] = dw[h]"),
    Mutant(
        "dk rounded in each tile",
        BACKWARD,
        "T.atomic_add(dK[index[i], b, d], dk[i, d])",
        "T.atomic_add(dK[index[i], b, d], T.reinterpret(T.reinterpret(dk[i, d], INT32) & -65536, FP32))",
    ),
    Mutant("dk overwritten", BACKWARD, "T.atomic_add(dK[index[i], b, d], dk[i, d])", "dK[index[i], b, d] = dk[i, d]"),
    Mutant("dk started from garbage", BWD, "torch.zeros(k.shape,", "torch.empty(k.shape,"),
    Mutant("dq in float32", BWD, "make(q.shape, dtype=q.dtype,", "make(q.shape, dtype=torch.float32,"),
    Mutant(
        "second derivative computed",
        OPS,
        'raise RuntimeError("the lightning indexer is differentiable once: its gradient has no derivative")',
        "return (*grads, *(None,) * 5)",
    ),
    # Documents
    Mutant("document of the token before", MASK, "right=True, out_int32=True", "right=False, out_int32=True", "packed"),
    Mutant("windows straddle documents", MASK, "token - cu_seqlens_q[document] + 1", "token + 1", "packed"),
    Mutant("indices off by one document", MASK, "indices - starts", "indices - starts.roll(4)", "packed"),
    Mutant(
        "keys of a document not cut to it",
        MASK,
        "torch.minimum(starts + complete, limits)",
        "starts + complete",
        "packed",
    ),
    Mutant(
        "row stored a quad late",
        FWD,
        "*place, -4 if from_start else 0",
        "*place, -8 if from_start else 0",
        "packed",
    ),
    # Arguments
    Mutant("shapes unchecked", RUNTIME, "if wrong:", "if False:"),
    Mutant("argument not named", RUNTIME, "`{name}` must have shape", "an argument must have shape"),
)


def test_there_are_enough_mutants() -> None:
    assert len(MUTANTS) >= 60
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


@pytest.mark.parametrize("name", ["seed", "padded", "operator", "packed", "ranges"])
def test_the_true_package_passes_every_time(name: str, emitted: dict[str, Emitted], judge: Judge) -> None:
    for _ in range(TRUE_RUNS // len(emitted)):
        verdict = judge(emitted[name].folder, emitted[name].spec)
        assert verdict.passed, verdict
