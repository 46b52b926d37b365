"""The main job as a user runs it: generate, compile and validate; and a kernel with a fault does not get through."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def v4gen(output: Path, *arguments: str) -> tuple[int, Any]:
    """The exit code and the JSON document of a command on the tiny spec."""
    command = [sys.executable, "-m", "v4gen", *arguments, "specs/tiny.yaml", "--output", str(output), "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.returncode, json.loads(done.stdout)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, Any]:
    output = tmp_path_factory.mktemp("built")
    return output, *v4gen(output, "build", "--target", "cpu", "-j1")


@pytest.mark.xdist_group("build")
def test_a_build_compiles_and_validates(built: tuple[Path, int, Any]) -> None:
    _, code, data = built
    (package,) = data["packages"]
    assert (code, package["passed"]) == (0, True)
    assert [(kernel["kernel"], kernel["stage"]) for kernel in package["kernels"]] == [
        ("scores", "compiled"),
        ("select", "compiled"),
        ("backward", "compiled"),
    ]
    assert len(package["validation"]["cases"]) > 40


@pytest.mark.xdist_group("build")
def test_an_edited_kernel_fails_validation(built: tuple[Path, int, Any]) -> None:
    output, _, _ = built
    module = output / "tiny" / "_backward.py"
    text = module.read_text(encoding="utf-8")
    assert text.count("products[i, h] > 0") == 1
    module.write_text(text.replace("products[i, h] > 0", "products[i, h] >= 0"), encoding="utf-8")
    code, data = v4gen(output, "validate")
    (validation,) = data["validations"]
    assert (code, validation["passed"]) == (1, False)
    assert "integers" in [case["name"] for case in validation["cases"] if not case["passed"]]
    assert v4gen(output, "check")[0] == 1
