"""The validator passes a right package, whatever its spec, and catches each of many wrong ones."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import pytest

from v4gen.read.spec import Spec
from v4gen.run.evidence import Validation
from v4gen.run.worker import opened_trials

PLAIN = Path(__file__).parent / "plain_indexer"
SIZES = MappingProxyType({"heads": 4, "dim": 32, "topk": 8, "compress_ratio": 4})
SEED = MappingProxyType({**SIZES, "interface": "seed", "layout": "SBHD", "width": "min"})
VARLEN = MappingProxyType({**SIZES, "layout": "THD", "mask": "varlen"})
FWD, TOPK, BWD, INDEXER = (f"tilelang_indexer{part}.py" for part in ("_fwd", "_topk", "_bwd", ""))
MASK = "mask.py"


def spec_of(**keys: object) -> Spec:
    return Spec.model_validate({"schema": "v4gen/1", "name": "plain", **keys})


def write_package(directory: Path, spec: Spec) -> Path:
    """The plain package with the spec's constants."""
    shutil.copytree(PLAIN, directory, ignore=shutil.ignore_patterns("__pycache__"))
    constants = {
        "HEADS": spec.heads,
        "DIM": spec.dim,
        "TOPK": spec.topk,
        "RATIO": spec.compress_ratio,
        "LAYOUT": spec.layout,
        "MASK": spec.mask,
        "LOCAL": spec.index_base == "local",
        "WIDTH_MIN": spec.width == "min",
        "BY_INDEX": spec.order == "index",
        "SCALE": spec.weight_scale,
        "DTYPE": spec.dtype,
    }
    text = "".join(f"{name} = {value!r}\n" for name, value in constants.items())
    (directory / "constants.py").write_text(text, encoding="utf-8")
    return directory


def failures(validation: Validation) -> str:
    return "\n".join(
        f"{case.name}: {case.error} {[f'{m.name}: {m.where}' for m in case.failures]}" for case in validation.failures
    )


@pytest.mark.parametrize(
    "keys",
    [
        SEED,
        {**SEED, "topk": 2},
        {**SEED, "heads": 8, "dim": 64},
        {**SIZES, "order": "index"},
        {**SIZES, "dtype": "float16", "weight_scale": 0.3, "compress_ratio": 2},
        {"heads": 1, "dim": 16, "topk": 1, "compress_ratio": 1, "layout": "SBHD"},
        {"heads": 3, "dim": 48, "topk": 70, "compress_ratio": 128, "backward": {"deterministic": True}},
        {**SIZES, "mask": "ranges", "layout": "SBHD", "width": "min"},
        {**SIZES, "mask": "ranges", "layout": "THD", "order": "index", "dtype": "float16"},
        VARLEN,
        {**VARLEN, "index_base": "local", "width": "min", "order": "index", "compress_ratio": 1, "weight_scale": 0.3},
    ],
    ids=[
        "seed",
        "golden table 1",
        "golden table 2",
        "by index",
        "float16 scaled",
        "smallest",
        "long windows",
        "ranges",
        "packed ranges",
        "documents",
        "local indices",
    ],
)
def test_a_right_package_passes(tmp_path: Path, keys: dict[str, object]) -> None:
    spec = spec_of(**keys)
    with opened_trials(write_package(tmp_path / "package", spec), spec, "cpu") as (_, trials):
        validation = Validation(spec.name, "cpu", tuple(trial.run() for trial in trials))
    assert validation.passed, failures(validation)
    assert len(validation.cases) > 45


DEFAULT = spec_of(**SEED)
DOCUMENTS = spec_of(**VARLEN)
LOCAL = spec_of(**VARLEN, index_base="local")
RANGES = spec_of(**SIZES, mask="ranges")


@dataclass(frozen=True)
class Mutant:
    """One textual change to the plain package, and the measurement that must see it."""

    name: str
    file: str
    old: str
    new: str
    seen_by: str
    spec: Spec = DEFAULT


MUTANTS = (
    Mutant("all zeros", FWD, "result[sample] = scores", "result[sample] = scores * 0", "scores"),
    Mutant("all NaN", FWD, "result[sample] = scores", "result[sample] = torch.nan", "scores"),
    Mutant(
        "one row in fifty", FWD, "q_k = dots.clamp(min=0)", "q_k = dots.clamp(min=0); q_k[49::50] *= 1.01", "scores"
    ),
    Mutant("bound t // r", MASK, "device=device) + 1) //", "device=device)) //", "NaN and inf"),
    Mutant("bound one late", MASK, "device=device) + 1) //", "device=device) + 2) //", "scores outside the mask"),
    Mutant("offset ignored", MASK, "((offset + torch", "((0 * offset + torch", "NaN and inf"),
    Mutant("windows go on", MASK, "(at - tokens[of] + 1)", "(at + 1)", "scores outside the mask", DOCUMENTS),
    Mutant("next document", MASK, ".minimum(keys[of + 1] - keys[of])", "", "scores outside the mask", DOCUMENTS),
    Mutant("indices of all", MASK, "starts if LOCAL else", "0 * starts if LOCAL else", "selected indices", LOCAL),
    Mutant("promise unheard", MASK, "longest is not None:", "False:", "scores outside the mask", RANGES),
    Mutant(
        "ranges of sample 0", MASK, "bound if bound.ndim == 2", "bound[:1] if bound.ndim == 2", "NaN and inf", RANGES
    ),
    Mutant("starts unheard", FWD, "(key >= starts[..., None]) &", "", "scores outside the mask", RANGES),
    Mutant(
        "any mask",
        MASK,
        "if value is not None and name",
        "if False and name",
        "cu_seqlen_ks: not of mask varlen",
        DOCUMENTS,
    ),
    Mutant(
        "scores of a document by the others",
        FWD,
        "result[sample] = scores",
        "result[sample] = scores * (1 + 2**-23 * (q.shape[1] % 2))",
        "scores, in parts",
        DOCUMENTS,
    ),
    Mutant(
        "dq of a share by the others",
        BWD,
        "dq[sample] = passed @ keys",
        "dq[sample] = passed @ keys * (1 + 2**-8 * (q.shape[1] % 2))",
        "dq, in parts",
    ),
    Mutant("no relu", FWD, "q_k = dots.clamp(min=0)", "q_k = dots", "scores"),
    Mutant(
        "relu after the weights",
        FWD,
        'scores = torch.einsum("sh,shn->sn", scaled, q_k)',
        "scores = (scaled[:, :, None] * q_k).clamp(min=0).sum(1)",
        "scores",
    ),
    Mutant("NaN clamped away", FWD, "dots.clamp(min=0)", "torch.where(dots > 0, dots, 0.0)", "NaN and inf"),
    Mutant("minus zero kept", FWD, "torch.where(result == 0, 0.0,", "torch.where(result == 0, -0.0,", "sign of zero"),
    Mutant("keys of sample 0", FWD, "keys = k[sample]", "keys = k[0]", "scores"),
    Mutant("one head dropped", FWD, "* SCALE", "* SCALE * (torch.arange(q.shape[2]) < q.shape[2] - 1)", "scores"),
    Mutant(
        "last dims dropped", FWD, "keys = k[sample].double()", "keys = k[sample].double(); keys[:, -16:] = 0", "scores"
    ),
    Mutant("scores in bfloat16", FWD, "result[sample] = scores", "result[sample] = scores.bfloat16()", "scores"),
    Mutant("tail unwritten", FWD, "result[sample] = scores", "result[sample][:64] = scores[:64]", "NaN and inf"),
    Mutant(
        "keys written", FWD, "keys = k[sample].double()", "keys = k[sample].clamp_(-1, 1).double()", "inputs unmodified"
    ),
    Mutant(
        "ties to the highest index",
        TOPK,
        "torch.sort(matrix, dim=-1, descending=True, stable=True).indices",
        "matrix.shape[-1] - 1 - torch.sort(matrix.flip(-1), dim=-1, descending=True, stable=True).indices",
        "selected indices",
    ),
    Mutant("unstable on ties", TOPK, "torch.sort(matrix,", "torch.sort(matrix.bfloat16(),", "selected indices"),
    Mutant("filler index 0", TOPK, "masked_fill(void, -1)", "masked_fill(void, 0)", "selected indices"),
    Mutant("int64 indices", TOPK, "to(torch.int32)", "to(torch.int64)", "selected indices"),
    Mutant("gate open at zero", BWD, "gate = dots > 0", "gate = dots >= 0", "dq"),
    Mutant("void gradient leaks", BWD, "upstream = torch.where(valid, grad, 0.0)", "upstream = grad", "dw"),
    Mutant(
        "void becomes key 0",
        BWD,
        "kept = torch.where(valid, indices, 0).long()",
        "valid = valid | (indices == -1); kept = torch.where(valid, indices, 0).clamp(min=0).long()",
        "dq",
    ),
    Mutant("masked index gets gradient", INDEXER, "torch.where(hidden, -1, indices)", "indices", "dq"),
    Mutant("one head's gradient", BWD, "gate = dots > 0", "gate = dots > 0; gate[:, -1] = False", "dq"),
    Mutant(
        "dk summed in bfloat16",
        BWD,
        "dk[sample].index_add_(0, kept[sample].flatten(), by_column.flatten(0, 1))",
        "sink = dk[sample].bfloat16(); "
        "[sink.index_add_(0, kept[sample][t], by_column[t].bfloat16()) for t in range(q.shape[1])]; dk[sample] = sink",
        "dk, low level",
    ),
    Mutant("dk overwritten by duplicates", BWD, ".index_add_(", ".index_copy_(", "dk"),
    Mutant("dk started from garbage", BWD, "dk = torch.zeros(", "dk = torch.empty(", "dk"),
    Mutant("dw in bfloat16", BWD, ".sum(-1) * SCALE", ".sum(-1).bfloat16() * SCALE", "dw"),
    Mutant("dq in float32", BWD, "return dq.to(index_q.dtype), dw, dk", "return dq, dw, dk", "dtype of dq, low level"),
    Mutant(
        "dk in bfloat16",
        BWD,
        "return dq.to(index_q.dtype), dw, dk",
        "return dq.to(index_q.dtype), dw, dk.bfloat16()",
        "dtype of dk, low level",
    ),
    Mutant(
        "dq truncated",
        BWD,
        "return dq.to(index_q.dtype), dw, dk",
        "return (dq.float().view(torch.int32) & -65536).view(torch.float32).to(index_q.dtype), dw, dk",
        "bias of dq away from zero",
    ),
    Mutant(
        "dw of some runs",
        BWD,
        "return dq.to(index_q.dtype), dw, dk",
        "return dq.to(index_q.dtype), dw * (1 + 2**-20 * (torch.rand(()) < 0.5)), dk",
        "dw, 20 runs",
    ),
    Mutant("twice differentiable", INDEXER, "    @once_differentiable\n", "", "second derivative refused"),
    Mutant("argument not named", INDEXER, 'raise ValueError(f"`{name}` is', 'raise ValueError(f"it is', "q: heads"),
    Mutant("shapes unchecked", INDEXER, "if tuple(found) != tuple(expected):", "if False:", "weights: heads"),
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_wrong_package_fails(tmp_path: Path, mutant: Mutant) -> None:
    package = write_package(tmp_path / "package", mutant.spec)
    source = (package / mutant.file).read_text(encoding="utf-8")
    assert source.count(mutant.old) == 1
    (package / mutant.file).write_text(source.replace(mutant.old, mutant.new), encoding="utf-8")
    assert is_seen(mutant, package)


def is_seen(mutant: Mutant, folder: Path) -> bool:
    """Whether the measurement fails in some case; the cases after the first of them are not run."""
    with opened_trials(folder, mutant.spec, "cpu") as (_, trials):
        results = (trial.run() for trial in trials)
        return any(mutant.seen_by in {failure.name for failure in result.failures} for result in results)
