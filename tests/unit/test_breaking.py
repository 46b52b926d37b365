"""`breaking` names each change that breaks a caller, and only those."""

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from v4gen.cli import main
from v4gen.emit.breaking import breaks

ROOT = Path(__file__).parents[2]
SPEC = "schema: v4gen/1\nname: one\nheads: 4\ndim: 32\ntopk: 8\ncompress_ratio: 4\ntargets: [cpu, sm_90a]\n"
AUTOGRAD = """
class F(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        ctx.mark_non_differentiable(k)
        return q, k

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return grad, None
"""


def messages(before: str, now: str, module: str = "tilelang_indexer") -> list[str]:
    return [change.message for change in breaks("p", {f"{module}.py": before}, {f"{module}.py": now})]


@pytest.mark.parametrize(
    ("before", "now", "message"),
    [
        ("def f(a): ...", "", "it is gone"),
        ("def f(a, b=1) -> int: ...", "def g(a, b=1) -> int: ...", "it is gone; renamed to `g`?"),
        ("def f(a): ...", "def f(b): ...", "it takes no `a` any more"),
        ("def f(a): ...", "def f(a, b): ...", "it needs a new `b`"),
        ("def f(a): ...", "def f(a, *, b): ...", "it needs a new `b`"),
        ("def f(a, b): ...", "def f(b, a): ...", "positions changed: b, a, was a, b"),
        ("def f(a, b=1): ...", "def f(a, c=2, b=1): ...", "positions changed: a, c, b, was a, b"),
        ("def f(a, b=1): ...", "def f(a, b=2): ...", "`b` has the default 2, had the default 1"),
        ("def f(a, b=1): ...", "def f(a, b): ...", "`b` has no default, had the default 1"),
        ("def f(a, b): ...", "def f(a, *, b): ...", "`b` is taken by keyword only"),
        ("def f(a) -> int: ...", "def f(a) -> str: ...", "it returns str, was int"),
        ("def f(a) -> int: ...", "def f(a): ...", "it returns nothing known, was int"),
        ("TOPK = 8", "TOPK = 9", "it is 9, was 8"),
        ("class C(Base):\n  def m(self, a): ...", "class C(Base):\n  def m(self): ...", "it takes no `a` any more"),
        ("class C(Base): ...", "class C(Other): ...", "it is class(Other), was class(Base)"),
    ],
)
def test_what_breaks_is_named(before: str, now: str, message: str) -> None:
    assert message in messages(before, now)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("def f(a): ...", "def f(a, b=1): ..."),
        ("def f(a): ...", "def f(a, *, b=None): ..."),
        ("def f(a, *, b): ...", "def f(a, b): ..."),
        ("def f(a): ...", "def f(a: int | None): ..."),
        ("def f(a):\n  return 1", "def f(a):\n  '''Doc.'''\n  return 2"),
        ("def f(a): ...", "def f(a): ...\ndef g(b): ..."),
        ("def _f(a): ...", ""),
        ("", "NEW = 1"),
    ],
)
def test_what_breaks_nobody_is_not(before: str, now: str) -> None:
    assert messages(before, now) == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("        ctx.mark_non_differentiable(k)\n", "", "autograd: `ctx.mark_non_differentiable(k)` is gone"),
        ("    @once_differentiable\n", "", "autograd: `once_differentiable` is gone"),
        ("return grad, None", "return None, None", "other inputs get a gradient"),
        ("q: Tensor, k: Tensor)", "q: Tensor, k: Tensor, w: Tensor)", "it needs a new `w`"),
        ("-> tuple[Tensor, Tensor]", "-> Tensor", "it returns Tensor, was tuple[Tensor, Tensor]"),
    ],
)
def test_the_autograd_contract(old: str, new: str, message: str) -> None:
    assert old in AUTOGRAD
    assert any(found.startswith(message) for found in messages(AUTOGRAD, AUTOGRAD.replace(old, new)))


def test_how_gradients_are_computed_is_nobody_s_business() -> None:
    assert messages(AUTOGRAD, AUTOGRAD.replace("return grad, None", "return 2 * grad, None")) == []


def test_exports_targets_and_sizes() -> None:
    def package(runtime: str, exports: str) -> dict[str, str]:
        return {"_runtime.py": runtime, "__init__.py": f"__all__ = {exports}"}

    before = package("HEADS = 4\nDIM = 32\nTARGETS: dict = {'cpu': 'c', 'sm_90a': {}}", "['a', 'b']")
    now = package("HEADS = 8\nTARGETS: dict = {'cpu': 'c', 'sm_80': {}}", "['a', 'c']")
    found = {(change.name, change.message) for change in breaks("p", before, now)}
    assert found == {
        ("HEADS", "it is 8, was 4"),
        ("DIM", "it is gone"),
        ("TARGETS", "there is no kernel for `sm_90a` any more"),
        ("__init__.__all__", "`b` is not exported any more"),
    }


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(main, [*arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=me", "-c", "user.email=me@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project in a folder of a git repository, its package committed."""
    project = tmp_path / "models"
    (project / "specs").mkdir(parents=True)
    (project / "specs" / "one.yaml").write_text(SPEC)
    monkeypatch.chdir(project)
    assert run("generate").exit_code == 0
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "one")
    return project


def change(project: Path, old: str, new: str) -> None:
    path = project / "specs" / "one.yaml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def test_nothing_changed_is_0(project: Path) -> None:
    result = run("breaking", "--against", "HEAD")
    assert (result.exit_code, result.stdout) == (0, "1 package compared, nothing breaks\n")
    change(project, "topk: 8", "topk: 8\nbackward: {deterministic: true}")
    assert run("breaking", "--against", "HEAD").exit_code == 0


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("heads: 4", "heads: 8", "HEADS"),
        ("dim: 32", "dim: 64", "DIM"),
        ("topk: 8", "topk: 16", "TOPK"),
        ("compress_ratio: 4", "compress_ratio: 2", "COMPRESS_RATIO"),
        ("topk: 8", "topk: 8\nlayout: SBHD", "layout of q"),
        ("topk: 8", "topk: 8\nwidth: min", "width K"),
        ("topk: 8", "topk: 8\ndtype: float16", "DTYPE"),
        (", sm_90a", "", "TARGETS"),
    ],
)
def test_a_changed_spec_is_1_and_named(project: Path, old: str, new: str, name: str) -> None:
    change(project, old, new)
    result = run("breaking", "--against", "HEAD", "--json")
    data = json.loads(result.stdout)
    assert (result.exit_code, data["compatible"]) == (1, False)
    assert name in {entry["name"] for entry in data["breaking"]}


def test_going_from_seed_to_operator_takes_names_away(project: Path) -> None:
    change(project, "topk: 8", "topk: 8\ninterface: seed\nlayout: SBHD\nwidth: min")
    run("generate")
    git(project, "commit", "--quiet", "-am", "seed")
    change(project, "interface: seed", "interface: operator")
    said = run("breaking", "--against", "HEAD").stdout
    assert "v4_lighting_indexer: it is gone" in said and "`v4_lighting_indexer` is not exported any more" in said


def test_a_package_that_is_gone_is_1(project: Path) -> None:
    (project / "specs" / "two.yaml").write_text(SPEC.replace("name: one", "name: two"))
    (project / "specs" / "one.yaml").unlink()
    result = run("breaking", "--against", "HEAD")
    assert result.exit_code == 1 and "one: one: the package is gone" in result.stdout


@pytest.mark.parametrize("revision", ["nowhere", "--help", "HEAD:models"])
def test_an_unknown_revision_is_2(project: Path, revision: str) -> None:
    result = run("breaking", f"--against={revision}")
    assert result.exit_code == 2 and "no revision" in result.stderr


def test_looking_at_nothing_is_2(project: Path) -> None:
    (project / "specs" / "two.yaml").write_text(SPEC.replace("name: one", "name: two"))
    result = run("breaking", "specs/two.yaml", "--against", "HEAD")
    assert result.exit_code == 2 and "has none of these packages" in result.stderr


def test_outside_of_git_is_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "one.yaml").write_text(SPEC)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    result = run("breaking", "--against", "HEAD")
    assert result.exit_code == 2 and "git" in result.stderr
