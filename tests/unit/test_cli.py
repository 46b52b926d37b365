"""The command line: exit codes, the streams, one JSON document under --json, and what a command leaves alone."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from v4gen.cli import COMMANDS, main

ROOT = Path(__file__).parents[2]
SPEC = "schema: v4gen/1\nname: {name}\nheads: 4\ndim: 32\ntopk: 8\ncompress_ratio: 4\n"


def run(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def run_json(*arguments: str | Path) -> tuple[int, Any]:
    """The exit code and the one document on standard output; standard error stays empty."""
    result = run(*arguments, "--json")
    assert result.stderr == ""
    return result.exit_code, json.loads(result.stdout)


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {path.relative_to(folder).as_posix(): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with two specs, generated, as the current folder."""
    (tmp_path / "pyproject.toml").write_text('[tool.v4gen]\nspecs = ["specs/*.yaml"]\noutput = "out"\n')
    (tmp_path / "specs").mkdir()
    for name in ("one", "two"):
        (tmp_path / "specs" / f"{name}.yaml").write_text(SPEC.format(name=name))
    monkeypatch.chdir(tmp_path)
    assert run("generate").exit_code == 0
    return tmp_path


def bad_spec(project: Path, heads: str = "010") -> Path:
    path = project / "bad.yaml"
    path.write_text(SPEC.format(name="bad").replace("heads: 4", f"heads: {heads}"))
    return path


def test_every_command_explains_itself() -> None:
    listed = run("--help")
    assert listed.exit_code == 0
    for name in COMMANDS:
        assert name in listed.stdout
        assert run(name, "--help").exit_code == 0


@pytest.mark.parametrize(
    "arguments", [("chekc",), ("check", "--jsno"), ("validate", "--device", "tpu"), ("build", "-j", "0")]
)
def test_bad_usage_is_2(arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 2


def test_generate_writes_what_changed_and_says_so(project: Path) -> None:
    assert run("generate").stdout.endswith("2 packages, 0 files written\n")
    changed = project / "out" / "two" / "reference.py"
    changed.unlink()
    result = run("generate", "specs/two.yaml")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [f"wrote {changed.relative_to(project)}", "1 package, 1 file written"]
    assert run_json("generate") == (
        0,
        {"packages": ["one", "two"], "written": [], "removed": [], "conflicts": []},
    )


def test_generate_leaves_a_foreign_file_alone(project: Path) -> None:
    mine = project / "out" / "one" / "reference.py"
    mine.write_text("mine = 1\n")
    before = snapshot(project)
    result = run("generate")
    assert result.exit_code == 2
    assert "reference.py:1:1: error: " in result.stderr
    assert snapshot(project) == before


def test_generate_writes_elsewhere_if_asked(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    assert run("generate", "specs/one.yaml", "--output", elsewhere).exit_code == 0
    assert run("check", "specs/one.yaml", "--output", elsewhere).exit_code == 0
    assert sorted(path.name for path in elsewhere.iterdir()) == ["one", "v4gen.lock"]


def test_check_is_0_and_silent_about_it_when_all_is_well(project: Path) -> None:
    result = run("check")
    assert (result.exit_code, result.stdout) == (0, "2 packages checked, as the specs say\n")
    assert run_json("check") == (0, {"clean": True, "drift": []})


def test_check_shows_a_deleted_line_and_exits_1(project: Path) -> None:
    path = project / "out" / "one" / "tilelang_indexer_fwd.py"
    lines = path.read_text().splitlines(keepends=True)
    position = lines.index(
        "BLOCKS_PER_PROCESSOR = 2  # at least, where the keys allow: fewer leave multiprocessors idle at the end\n"
    )
    path.write_text("".join(lines[:position] + lines[position + 1 :]))
    result = run("check")
    assert result.exit_code == 1
    assert (
        "+BLOCKS_PER_PROCESSOR = 2  # at least, where the keys allow: fewer leave multiprocessors idle at the end"
        in result.stdout.splitlines()
    )
    assert "edited: " in result.stderr and "tilelang_indexer_fwd.py" in result.stderr
    code, data = run_json("check")
    assert (code, data["clean"], [entry["kind"] for entry in data["drift"]]) == (1, False, ["edited"])


@pytest.mark.parametrize("change", ["missing", "edited", "orphan"])
def test_check_writes_nothing(project: Path, change: str) -> None:
    path = project / "out" / "one" / "reference.py"
    if change == "missing":
        path.unlink()
    elif change == "edited":
        path.write_text(path.read_text() + "\n# edited\n")
    else:
        (project / "specs" / "two.yaml").unlink()
    before = snapshot(project)
    result = run("check")
    assert result.exit_code == 1 and change in result.stderr
    assert snapshot(project) == before


def test_check_does_not_make_the_folder_it_looks_for(project: Path) -> None:
    assert run("check", "--output", project / "nowhere").exit_code == 1
    assert not (project / "nowhere").exists()


@pytest.mark.parametrize("command", ["check", "generate", "build", "validate", "list"])
def test_looking_at_nothing_is_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.v4gen]\nspecs = ["models/*.yaml"]\n')
    monkeypatch.chdir(tmp_path)
    result = run(command)
    assert result.exit_code == 2
    assert "no specs at `models/*.yaml`" in result.stderr
    code, data = run_json(command)
    assert (code, data["diagnostics"][0]["code"]) == (2, "no-specs")
    assert [path.name for path in tmp_path.iterdir()] == ["pyproject.toml"]


@pytest.mark.parametrize("command", ["check", "generate", "build", "validate", "bench", "list"])
def test_a_bad_spec_is_2_points_at_its_place_and_writes_nothing(project: Path, command: str) -> None:
    path = bad_spec(project)
    before = snapshot(project)
    result = run(command, path, "specs/one.yaml")
    assert result.exit_code == 2
    assert result.stdout == ""
    place, line, caret = result.stderr.splitlines()[:3]
    assert place.startswith(f"{path.as_posix()}:3:8: error: ")
    assert "heads: 010" in line
    assert caret.index("^") - line.index("heads: 010") == 7
    code, data = run_json(command, path, "specs/one.yaml")
    (fault,) = data["diagnostics"]
    assert (code, fault["line"], fault["column"], fault["severity"]) == (2, 3, 8, "error")
    assert snapshot(project) == before


@pytest.mark.parametrize("command", ["check", "generate", "build", "validate"])
@pytest.mark.parametrize("name", ["absent.yaml", "specs"])
def test_a_spec_that_cannot_be_read_is_2(project: Path, command: str, name: str) -> None:
    code, data = run_json(command, name)
    assert code == 2
    assert name in data["diagnostics"][0]["message"] or name in str(data["diagnostics"][0]["file"])


@pytest.mark.parametrize("command", ["check", "generate"])
def test_a_spec_that_no_schedule_fits_is_2_with_numbers(project: Path, command: str) -> None:
    path = project / "large.yaml"
    path.write_text(
        "schema: v4gen/1\nname: large\nheads: 128\ndim: 256\ntopk: 8\ncompress_ratio: 4\ntargets: [gfx942]\n"
    )
    result = run(command, path)
    assert result.exit_code == 2
    assert "65536" in result.stderr and "gfx942" in result.stderr


def test_bad_settings_are_2(project: Path) -> None:
    (project / "pyproject.toml").write_text('[tool.v4gen]\noutput = "../out"\n')
    result = run("check")
    assert result.exit_code == 2 and "pyproject.toml:2:1: error: " in result.stderr
    assert run_json("check")[0] == 2


def test_validate_without_a_package_is_2(project: Path) -> None:
    code, data = run_json("validate", "specs/one.yaml", "--output", "nowhere")
    assert (code, data["diagnostics"][0]["code"]) == (2, "missing-package")


def test_list_knows_every_spec(project: Path) -> None:
    code, data = run_json("list")
    assert (code, [spec["name"] for spec in data["specs"]]) == (0, ["one", "two"])
    assert all(name in run("list").stdout for name in ("one", "two"))


def test_schema_is_a_json_document() -> None:
    assert json.loads(run("schema").stdout)["$schema"].startswith("https://json-schema.org/")


def v4gen(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True)


def test_check_holds_the_committed_packages_and_loads_neither_torch_nor_tilelang() -> None:
    done = v4gen("-X", "importtime", "-m", "v4gen", "check")
    assert done.returncode == 0, done.stdout
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "jinja2" in loaded
    assert not {name for name in loaded if name.partition(".")[0] in {"torch", "tilelang", "tvm", "numpy"}}


@pytest.mark.parametrize("arguments", [("list",), ("check",), ("generate", "--output"), ("list", "--json")])
def test_an_ascii_terminal_takes_the_output(project: Path, arguments: tuple[str, ...]) -> None:
    spec = project / "specs" / "one.yaml"
    spec.write_text(SPEC.format(name="one") + "description: Größe − ∞\n", encoding="utf-8")
    more = (str(project / "fresh"),) if arguments[-1] == "--output" else ()
    done = v4gen(
        "-m", "v4gen", *arguments, *more, str(spec), LC_ALL="C", LANG="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode in (0, 1)
