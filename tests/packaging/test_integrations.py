"""The pre-commit hook and the GitHub action, as far as they can be run here: what they start works in a project."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
SPEC = "schema: v4gen/1\nname: one\nheads: 4\ndim: 32\ntopk: 8\ncompress_ratio: 4\ntargets: [cpu]\n"
V4GEN = Path(sys.executable).with_name("v4gen")


def load(name: str) -> Any:
    return YAML(typ="safe").load((ROOT / name).read_text(encoding="utf-8"))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a generated package, in a folder with a space."""
    project = tmp_path / "a model"
    (project / "specs").mkdir(parents=True)
    (project / "specs" / "one.yaml").write_text(SPEC)
    subprocess.run([V4GEN, "generate"], cwd=project, check=True, capture_output=True)
    return project


def outdate(project: Path) -> None:
    (project / "specs" / "one.yaml").write_text(SPEC.replace("topk: 8", "topk: 9"))


def test_the_hook_starts_where_something_of_v4gen_s_changed() -> None:
    (hook,) = load(".pre-commit-hooks.yaml")
    started = ["indexers/one.yaml", "a.yml", "src/kernels/one/_ops.py", "src/kernels/v4gen.lock", "pyproject.toml"]
    assert all(re.search(hook["files"], path) for path in started)
    assert not any(re.search(hook["files"], path) for path in ("README.md", "poetry.lock", "data.csv"))


def test_what_the_hook_runs(project: Path) -> None:
    (hook,) = load(".pre-commit-hooks.yaml")
    program, *arguments = hook["entry"].split()
    assert (program, hook["pass_filenames"]) == ("v4gen", False)
    assert subprocess.run([V4GEN, *arguments], cwd=project, capture_output=True).returncode == 0
    outdate(project)
    assert subprocess.run([V4GEN, *arguments], cwd=project, capture_output=True).returncode == 1


def run_action(project: Path, temporary: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """The last step of the action, which is the check, as the runner would start it."""
    action = load("action.yml")
    step = action["runs"]["steps"][-1]
    bin_folder = temporary / "v4gen" / "bin"
    bin_folder.mkdir(parents=True, exist_ok=True)
    if not (bin_folder / "v4gen").exists():
        (bin_folder / "v4gen").symlink_to(V4GEN)
    defaults = {name: about["default"] for name, about in action["inputs"].items()} | inputs
    environment = {name: _expanded(value, defaults) for name, value in step["env"].items()}
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=project,
        env=os.environ | environment | {"RUNNER_TEMP": str(temporary)},
        capture_output=True,
        text=True,
    )


def _expanded(value: str, inputs: dict[str, str]) -> str:
    match = re.fullmatch(r"\$\{\{ inputs\.([a-z-]+) \}\}", value)
    assert match, value
    return inputs[match[1]]


@pytest.mark.skipif(shutil.which("bash") is None, reason="the action runs in bash")
def test_the_action_annotates(project: Path, tmp_path: Path) -> None:
    assert run_action(project, tmp_path).returncode == 0
    assert run_action(project, tmp_path, strict="true", specs="specs/one.yaml").returncode == 0
    outdate(project)
    done = run_action(project, tmp_path)
    assert done.returncode == 1
    assert re.search(r"^::error file=generated/one/", done.stdout, re.MULTILINE)
    (project / "specs" / "one.yaml").write_text(SPEC.replace("heads: 4", "heads: no"))
    done = run_action(project, tmp_path)
    assert done.returncode == 2
    assert re.search(r"^::error file=specs/one.yaml,line=3,", done.stdout, re.MULTILINE)


def test_no_input_reaches_a_script_as_text() -> None:
    """An expression in a script would run what a pull request writes into it; in `env` it stays a value."""
    for step in load("action.yml")["runs"]["steps"]:
        assert "${{" not in step.get("run", "")
