"""`vendor` brings specs, packages and settings into another project, which then checks alone; `clean` removes them."""

import json
import os
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from v4gen.cli import main
from v4gen.emit.clean import ABANDONED, stale_folders
from v4gen.emit.format import TEMPORARY
from v4gen.read.schema import SCHEMA_FILE

SPEC = "schema: v4gen/1\nname: one\nheads: 4\ndim: 32\ntopk: 8\ncompress_ratio: 4\ntargets: [cpu]\n"


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty repository beside a spec."""
    (tmp_path / "one.yaml").write_text(SPEC)
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path / "model"


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(main, [*arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def check(folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.chdir(folder)
    return run("check").exit_code


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_repository_checks_alone(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run("vendor", "model", "one.yaml", "tiny", "--specs", "indexers", "--output", "src/kernels")
    assert result.exit_code == 0
    for step in ("commit", "from kernels.one import lightning_indexer", "v4gen check"):
        assert step in result.stdout
    assert (model / "indexers" / "one.yaml").read_text() == SPEC
    assert (model / "indexers" / SCHEMA_FILE).is_file()
    assert (model / "src" / "kernels" / "tiny" / "__init__.py").is_file()
    (model.parent / "one.yaml").unlink()
    assert check(model, monkeypatch) == 0
    spec = model / "indexers" / "one.yaml"
    spec.write_text("# a comment\r\n" + SPEC.replace("\n", "\r\n"), newline="")
    assert check(model, monkeypatch) == 0
    spec.write_text(SPEC.replace("topk: 8", "topk: 9"))
    assert check(model, monkeypatch) == 1


def test_two_vendored_packages_go_red_exactly_when_something_matters(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("vendor", "model", "one.yaml", "tiny", "--specs", "specs", "--output", "kernels").exit_code == 0
    spec, kernel = model / "specs" / "one.yaml", model / "kernels" / "tiny" / "_scores.py"
    quiet = {
        spec: [b"# who asked for it\n" + spec.read_bytes(), spec.read_bytes().replace(b"\n", b"\r\n")],
        kernel: [kernel.read_bytes().replace(b"\n", b"\r\n")],
    }
    red = {
        spec: [spec.read_bytes().replace(b"dim: 32", b"dim: 48")],
        kernel: [kernel.read_bytes().replace(b"block_N=16", b"block_N=32"), kernel.read_bytes()[:-2]],
    }
    for code, changes in ((0, quiet), (1, red)):
        for path, texts in changes.items():
            before = path.read_bytes()
            for text in texts:
                assert text != before
                path.write_bytes(text)
                assert check(model, monkeypatch) == code
            path.write_bytes(before)
    assert check(model, monkeypatch) == 0


def test_again_is_nothing(model: Path) -> None:
    run("vendor", "model", "one.yaml")
    before = contents(model)
    assert json.loads(run("vendor", "model", "one.yaml", "--json").stdout) == {"dry_run": False, "written": []}
    assert contents(model) == before


def test_a_dry_run_writes_nothing(model: Path) -> None:
    result = run("vendor", "model", "one.yaml", "--dry-run")
    assert "would write model/specs/one.yaml" in result.stdout
    assert list(model.iterdir()) == []


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("ending", ["", "\n"])
def test_settings_go_to_the_end_and_nothing_else_changes(model: Path, newline: str, ending: str) -> None:
    text = f'[project]\nname = "model"  # a comment\nversion = "1"{ending}'.replace("\n", newline)
    (model / "pyproject.toml").write_text(text, newline="")
    assert run("vendor", "model", "one.yaml").exit_code == 0
    changed = (model / "pyproject.toml").read_bytes().decode()
    assert changed.startswith(text)
    assert changed.count("\n") == changed.count(newline)
    assert f'[tool.v4gen]{newline}specs = ["specs/*.yaml"]{newline}output = "generated"{newline}' in changed


def test_settings_that_are_there_are_kept(model: Path) -> None:
    text = '[tool.v4gen]\nspecs = ["mine/*.yaml"]\noutput = "lib"\n'
    (model / "pyproject.toml").write_text(text)
    assert run("vendor", "model", "one.yaml", "--output", "other").exit_code == 0
    assert (model / "pyproject.toml").read_text() == text
    assert (model / "mine" / "one.yaml").is_file() and (model / "lib" / "one" / "__init__.py").is_file()


@pytest.mark.parametrize("mine", ["specs/one.yaml", "generated/one/reference.py"])
def test_a_file_of_the_repository_s_own_is_never_overwritten(model: Path, mine: str) -> None:
    (model / mine).parent.mkdir(parents=True)
    (model / mine).write_text("mine = 1\n")
    result = run("vendor", "model", "one.yaml")
    assert result.exit_code == 2 and f"model/{mine}:1:1: error: " in result.stderr
    assert contents(model) == {mine: b"mine = 1\n"}


def test_other_packages_are_left_alone(model: Path) -> None:
    run("vendor", "model", "tiny")
    edited = model / "generated" / "tiny" / "reference.py"
    edited.write_text(edited.read_text() + "# edited\n")
    assert run("vendor", "model", "one.yaml").exit_code == 0
    assert edited.read_text().endswith("# edited\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere", "one.yaml"), "nowhere"),
        (("model", "absent"), "tiny"),
        (("model", "one.yaml", "--output", "../out"), "leaves the project"),
        (("model",), "SPEC"),
    ],
)
def test_bad_input_is_2(model: Path, arguments: tuple[str, ...], said: str) -> None:
    result = run("vendor", *arguments)
    assert result.exit_code == 2 and said in result.stderr
    assert list(model.iterdir()) == []


def test_a_broken_pyproject_is_2(model: Path) -> None:
    (model / "pyproject.toml").write_text("[tool\n")
    assert run("vendor", "model", "one.yaml").exit_code == 2
    (model / "pyproject.toml").write_text("tool = {}\n")  # a table that nothing can be added to
    result = run("vendor", "model", "one.yaml")
    assert result.exit_code == 2 and "add them yourself" in result.stderr
    assert [path.name for path in model.iterdir()] == ["pyproject.toml"]


@pytest.fixture
def vendored(model: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    assert run("vendor", "model", "one.yaml", "tiny").exit_code == 0
    monkeypatch.chdir(model)
    return model


def test_clean_removes_what_a_killed_run_staged_and_nothing_else(vendored: Path) -> None:
    folder = vendored / "generated" / "one"
    stale = [folder / "._ops.py.abcd_123.tmp", vendored / "generated" / ".v4gen.lock.abcd_123.tmp"]
    other = [folder / ".mine.py.abcd_123.tmp", folder / "notes.tmp", vendored / ".v4gen.lock.abcd_123.tmp"]
    for path in (*stale, *other):
        path.touch()
    before = contents(vendored)
    dry = run("clean", "--dry-run")
    assert all(f"would remove {path.relative_to(vendored)}" in dry.stdout for path in stale)
    assert contents(vendored) == before
    assert run("clean").exit_code == 0
    assert set(before) - set(contents(vendored)) == {path.relative_to(vendored).as_posix() for path in stale}


def test_clean_packages_removes_those_that_generate_brings_back(vendored: Path) -> None:
    before = contents(vendored)
    (vendored / "generated" / "one" / "mine.py").write_text("mine = 1\n")
    (vendored / "generated" / "one" / "__pycache__").mkdir()
    (vendored / "generated" / "one" / "__pycache__" / "reference.cpython-311.pyc").touch()
    assert run("clean", "--packages").exit_code == 0
    assert sorted(path.name for path in (vendored / "generated").iterdir()) == ["one", "v4gen.lock"]
    assert [path.name for path in (vendored / "generated" / "one").iterdir()] == ["mine.py"]
    assert run("generate").exit_code == 0
    assert contents(vendored) == {**before, "generated/one/mine.py": b"mine = 1\n"}


def test_clean_keeps_a_package_that_was_changed(vendored: Path) -> None:
    edited = vendored / "generated" / "one" / "reference.py"
    edited.write_text(edited.read_text() + "# edited\n")
    before = contents(vendored)
    result = run("clean", "--packages", "specs/one.yaml")
    assert result.exit_code == 0 and "kept one: " in result.stderr
    data = json.loads(run("clean", "--packages", "specs/one.yaml", "--json").stdout)
    assert data == {
        "dry_run": False,
        "removed": [],
        "kept": [{"package": "one", "path": "generated/one/reference.py"}],
    }
    assert contents(vendored) == before


def test_folders_of_a_killed_formatter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    old, new, other = (tmp_path / name for name in (f"{TEMPORARY}abcd_123", f"{TEMPORARY}abcd_124", "v4gen-1000"))
    for folder in (old, new, other):
        folder.mkdir()
    (tmp_path / f"{TEMPORARY}abcd_125").symlink_to(other)
    past = time.time() - 2 * ABANDONED
    os.utime(old, (past, past))
    os.utime(other, (past, past))
    assert stale_folders() == (old,)
