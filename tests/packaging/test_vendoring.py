"""A generated package works wherever it is copied: under any name, twice in a process, typed, and without v4gen."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Stands for an environment in which v4gen is not installed.
WITHOUT_V4GEN = "import sys; sys.modules['v4gen'] = None; "

RUN_BOTH = """
import torch
import first_kernels.tilelang_indexer as first, company.other_kernels.tilelang_indexer as other

generator = torch.Generator().manual_seed(0)
draw = lambda *shape: torch.randint(-2, 3, shape, generator=generator)
q, k, w = draw(21, 2, 4, 32).bfloat16(), draw(5, 2, 32).bfloat16(), draw(21, 2, 4).float()
results = []
for module in (first, other):
    leaves = [tensor.clone().requires_grad_() for tensor in (q, k, w)]
    scores, indices = module.v4_lighting_indexer(*leaves, 4, 8)
    scores.backward(torch.ones_like(scores))
    results.append((scores, indices, *(leaf.grad for leaf in leaves)))
assert all(torch.equal(one, another) for one, another in zip(*results))
assert results[0][2].abs().sum() > 0
assert first.V4IndexerFunction is not other.V4IndexerFunction
assert first.__name__ == "first_kernels.tilelang_indexer"
assert not [name for name, module in sys.modules.items() if name.partition(".")[0] == "v4gen" and module]
"""

CALLER = """
import torch
from first_kernels import lightning_indexer
from first_kernels.tilelang_indexer import LightningIndexer, V4IndexerFunction, v4_lighting_indexer
from first_kernels.tilelang_indexer_bwd import batched_indexer_bwd
from first_kernels.tilelang_indexer_fwd import _make_causal_cu_seqlens, batched_indexer_fwd


def loss(q: torch.Tensor, k: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    scores, indices = V4IndexerFunction.apply(q, k, weights, 4, 8)
    reveal_type(V4IndexerFunction.apply(q, k, weights, 4, 8))
    reveal_type(v4_lighting_indexer(q, k, weights, 4, 8))
    reveal_type(lightning_indexer(q, k, weights, query_offset=1))
    reveal_type(LightningIndexer()(q, k, weights))
    reveal_type(batched_indexer_fwd(q, k, weights, *_make_causal_cu_seqlens(4, 1, 4, q.device)))
    reveal_type(batched_indexer_bwd(q, weights, k, indices, scores)[2])
    return scores.sum()
"""
TENSOR = "torch._tensor.Tensor"
PAIR = f"tuple[{TENSOR}, {TENSOR}]"


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], cwd=cwd, capture_output=True, text=True)


def mypy(project: Path, path: str) -> subprocess.CompletedProcess[str]:
    # Equal options and one cache: torch's annotations are read once.
    return run("-m", "mypy", "--strict", "--no-error-summary", path, cwd=project)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with two copies of the tiny package, one of them inside a package of its own."""
    root = tmp_path_factory.mktemp("project")
    for copy in (root / "first_kernels", root / "company" / "other_kernels"):
        shutil.copytree(ROOT / "generated" / "tiny", copy, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "company" / "__init__.py").touch()
    return root


@pytest.mark.xdist_group("vendoring")
def test_two_copies_run_in_one_process_without_v4gen(project: Path) -> None:
    done = run("-c", WITHOUT_V4GEN + RUN_BOTH, cwd=project)
    assert done.returncode == 0, done.stderr


@pytest.mark.xdist_group("vendoring")
@pytest.mark.parametrize("name", ["deepseek_v4_flash", "tiny"])
def test_importing_compiles_nothing_and_needs_no_compiler(project: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(ROOT / "generated" / name, tmp_path / "vendored")
    code = "import vendored.tilelang_indexer_bwd, vendored.reference; from vendored import _runtime"
    done = run("-c", f"{WITHOUT_V4GEN}{code}; assert not _runtime._compiled", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.xdist_group("vendoring")
def test_a_strictly_typed_caller_sees_tensors(project: Path) -> None:
    """mypy has no configuration here: every exclusion stands inline in the emitted files."""
    (project / "caller.py").write_text(CALLER, encoding="utf-8")
    done = mypy(project, ".")
    assert done.returncode == 0, done.stdout + done.stderr
    revealed = [line.partition('type is "')[2].rstrip('"') for line in done.stdout.splitlines() if "Revealed" in line]
    assert revealed == [PAIR] * 4 + [TENSOR] * 2


@pytest.mark.xdist_group("vendoring")
@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("V4IndexerFunction.apply(q, k, weights, 4)", "call-arg"),
        ("V4IndexerFunction.apply(q, k, weights, 4, 'eight')", "arg-type"),
        ("lightning_indexer(q, k, weights, offset=1)", "call-arg"),
    ],
)
def test_a_wrong_call_is_a_type_error(project: Path, call: str, code: str) -> None:
    text = CALLER.partition("    scores, indices")[0] + f"    {call}\n    return q\n"
    (project / "caller.py").write_text(text, encoding="utf-8")
    done = mypy(project, "caller.py")
    assert done.returncode == 1 and f"[{code}]" in done.stdout


@pytest.mark.parametrize("name", ["deepseek_v4_flash", "tiny"])
def test_ruff_passes_on_a_copy(tmp_path: Path, name: str) -> None:
    shutil.copytree(ROOT / "generated" / name, tmp_path / "vendored")
    for arguments in (("check",), ("check", "--line-length=120", "--select=E,F,W,I,B,UP,PGH,RUF100")):
        done = run("-m", "ruff", *arguments, "--isolated", "--no-cache", ".", cwd=tmp_path)
        assert done.returncode == 0, done.stdout
