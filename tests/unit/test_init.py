"""`init` writes a spec that reads back as what was asked for, that fits its targets, and that replaces nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from v4gen.cli import main
from v4gen.read.draft import draft_spec
from v4gen.read.reader import parse_spec, read_spec
from v4gen.read.schema import SCHEMA_FILE, SCHEMA_ID, json_schema, schema_text
from v4gen.resources import spec_names, spec_text

FLAGS = ("--heads", "4", "--dim", "32", "--topk", "8", "--compress-ratio", "4")


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def init(*arguments: str) -> Result:
    result = CliRunner().invoke(main, ["init", *arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_a_spec_from_flags(project: Path) -> None:
    assert init("mine", *FLAGS, "--layout", "SBHD", "--targets", "cpu, sm_80").exit_code == 0
    path = project / "specs" / "mine.yaml"
    spec = read_spec(path)
    assert (spec.name, spec.heads, spec.dim, spec.topk, spec.compress_ratio) == ("mine", 4, 32, 8, 4)
    assert (spec.layout, spec.targets) == ("SBHD", ("cpu", "sm_80"))
    first, *rest = path.read_text().splitlines()
    assert first == f"# yaml-language-server: $schema={SCHEMA_FILE}"
    assert all("#" in line for line in rest[1:]), "every key is commented"
    assert (project / "specs" / SCHEMA_FILE).read_text() == schema_text()
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["mine.yaml", SCHEMA_FILE]


def test_it_builds(project: Path) -> None:
    init("mine", *FLAGS)
    assert CliRunner().invoke(main, ["generate"]).exit_code == 0
    assert (project / "generated" / "mine" / "__init__.py").is_file()


@pytest.mark.parametrize("name", spec_names())
def test_a_shipped_spec_comes_back_as_it_is(project: Path, name: str) -> None:
    assert init("--from", name).exit_code == 0
    assert read_spec(project / "specs" / f"{name}.yaml") == parse_spec(spec_text(name), name)


def test_flags_override_the_shipped_spec(project: Path) -> None:
    assert init("other", "--from", "deepseek_v4_flash", "--heads", "32").exit_code == 0
    shipped = parse_spec(spec_text("deepseek_v4_flash"), "shipped")
    assert read_spec(project / "specs" / "other.yaml") == shipped.model_copy(update={"name": "other", "heads": 32})


def test_the_seed_interface_brings_what_it_needs(project: Path) -> None:
    assert init("mine", *FLAGS, "--interface", "seed").exit_code == 0
    spec = read_spec(project / "specs" / "mine.yaml")
    assert (spec.layout, spec.mask, spec.width) == ("SBHD", "causal", "min")


def test_packed_documents_bring_their_mask(project: Path) -> None:
    result = init("mine", *FLAGS, "--layout", "THD")
    path = project / "specs" / "mine.yaml"
    assert "mask: varlen" in (path.read_text() if path.exists() else result.stderr)


def test_nothing_is_overwritten(project: Path) -> None:
    path = project / "specs" / "mine.yaml"
    path.parent.mkdir()
    path.write_text("mine\n")
    (path.parent / SCHEMA_FILE).write_text("{}")
    result = init("mine", *FLAGS)
    assert result.exit_code == 2 and "specs/mine.yaml:1:1: error: " in result.stderr
    assert path.read_text() == "mine\n"
    assert init("other", *FLAGS).exit_code == 0
    assert (path.parent / SCHEMA_FILE).read_text() == "{}"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("mine", *FLAGS, "--dim", "33"), "multiple of 16"),
        (("../mine", *FLAGS), "../mine"),
        (("class", *FLAGS), "keyword"),
        (("mine", *FLAGS, "--targets", "sm_42"), "sm_42"),
        (("mine", *FLAGS, "--from", "deepseek_v4_flahs"), "did you mean `deepseek_v4_flash`?"),
        (("mine", *FLAGS, "--heads", "128", "--dim", "256", "--targets", "gfx942"), "no schedule"),
        (("mine", "--heads", "4"), "--dim, --topk, --compress-ratio"),
        ((*FLAGS,), "NAME"),
    ],
)
def test_what_cannot_be_is_2_and_writes_nothing(project: Path, arguments: tuple[str, ...], said: str) -> None:
    result = init(*arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert list(project.iterdir()) == []


def answer(project: Path, *answers: str) -> str:
    """`v4gen init` on a terminal of its own: what it showed."""
    pty = pytest.importorskip("pty", reason="this system has no pseudo-terminals")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "v4gen", "init"]
    with subprocess.Popen(command, cwd=project, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.write(ours, "".join(f"{line}\n" for line in answers).encode())
        assert process.wait(30) == 0
    shown = os.read(ours, 10_000).decode()
    os.close(ours)
    os.close(theirs)
    return shown


def test_it_asks_on_a_terminal(project: Path) -> None:
    shown = answer(project, "mine", "4", "32", "8", "4", "", "SBHD", "cpu, sm_80")
    assert "Index heads" in shown and "wrote specs/mine.yaml" in shown
    spec = read_spec(project / "specs" / "mine.yaml")
    assert (spec.heads, spec.interface, spec.layout, spec.targets) == (4, "operator", "SBHD", ("cpu", "sm_80"))


def test_it_does_not_ask_what_follows(project: Path) -> None:
    shown = answer(project, "mine", "4", "32", "8", "4", "seed", "")
    assert "axes" not in shown
    spec = read_spec(project / "specs" / "mine.yaml")
    assert (spec.interface, spec.layout, spec.targets) == ("seed", "SBHD", ("cpu", "sm_90a"))


def test_it_writes_where_the_project_keeps_its_specs(project: Path) -> None:
    (project / "pyproject.toml").write_text('[tool.v4gen]\nspecs = ["models/indexers/*.yaml"]\n')
    data = json.loads(init("mine", *FLAGS, "--json").stdout)
    assert data == {"spec": "models/indexers/mine.yaml"}
    (project / "pyproject.toml").write_text('[tool.v4gen]\nspecs = ["*/indexers/*.yaml"]\n')
    result = init("other", *FLAGS)
    assert result.exit_code == 2 and "no single folder" in result.stderr


TEXT = st.text(st.characters(exclude_categories=["Cc", "Cs", "Cn", "Co", "Zl", "Zp"]), max_size=40)


@given(description=TEXT, name=st.from_regex(r"[a-z][a-z0-9_]{0,10}", fullmatch=True))
def test_any_text_survives(description: str, name: str) -> None:
    values = {"name": f"{name}_x", "description": description, "heads": 4, "dim": 32, "topk": 8, "compress_ratio": 4}
    spec = parse_spec(draft_spec(values), "drafted")
    assert (spec.name, spec.description) == (f"{name}_x", description)


@pytest.mark.parametrize(
    "word", ["yes", "no", "on", "off", "null", "true", "010", "1e2", "~", "- x", "a: b", "# c", "'"]
)
def test_words_that_yaml_reads_otherwise_stay_text(word: str) -> None:
    values = {"name": "mine", "description": word, "heads": 4, "dim": 32, "topk": 8, "compress_ratio": 4}
    assert parse_spec(draft_spec(values), "drafted").description == word


def test_the_schema_is_named_once() -> None:
    assert json_schema()["properties"]["schema"]["const"] == SCHEMA_ID
