"""`check` for programs: its formats, its patch, what counts with --strict; and what `generate` does about edits."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result

from v4gen.cli import main
from v4gen.emit import package, provenance
from v4gen.emit.evidence import code_on_disk, record_evidence
from v4gen.emit.lock import LOCK_NAME, Evidence
from v4gen.resources import template_text

ROOT = Path(__file__).parents[2]
SPEC = "schema: v4gen/1\nname: {name}\nheads: 4\ndim: 32\ntopk: 8\ncompress_ratio: 4\ntargets: [cpu]\n"
SCHEMA = json.loads((ROOT / "docs" / "schemas" / "check.schema.json").read_text(encoding="utf-8"))


def run(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def run_json(*arguments: str) -> tuple[int, Any]:
    """The exit code and the document, which always fits the documented schema."""
    result = run("check", "--output-format", "json", *arguments)
    assert result.stderr == ""
    data = json.loads(result.stdout)
    jsonschema.validate(data, SCHEMA)
    return result.exit_code, data


def git(*arguments: str) -> None:
    identity = ["-c", "user.name=T", "-c", "user.email=t@example.com"]
    subprocess.run(["git", *identity, *arguments], check=True, capture_output=True)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with three specs, generated, as the current folder."""
    (tmp_path / "pyproject.toml").write_text('[tool.v4gen]\noutput = "out put"\n')
    (tmp_path / "specs").mkdir()
    for name in ("one", "two", "three"):
        (tmp_path / "specs" / f"{name}.yaml").write_text(SPEC.format(name=name))
    monkeypatch.chdir(tmp_path)
    assert run("generate").exit_code == 0
    return tmp_path / "out put"


def respec(name: str, old: str, new: str) -> None:
    path = Path("specs") / f"{name}.yaml"
    path.write_text(path.read_text().replace(old, new))


def drift_of_every_kind(output: Path) -> None:
    """Missing, edited, outdated, orphaned and cosmetic files at once, and stale evidence."""
    code = code_on_disk(output, "two")
    record_evidence(output, "two", Evidence(code, "cpu", {"torch": "0.0.1"}, "digest"))
    (output / "one" / "py.typed").unlink()
    (output / "one" / "_ops.py").unlink()
    path = output / "one" / "reference.py"
    path.write_text(path.read_text(encoding="utf-8") + "\nEDITED = True", encoding="utf-8")
    path = output / "one" / "_runtime.py"
    path.write_text(path.read_text(encoding="utf-8").replace(" = ", "  = ", 1), encoding="utf-8")
    respec("two", "topk: 8", "topk: 16")
    Path("specs/three.yaml").unlink()


def test_every_kind_is_told_in_json(project: Path) -> None:
    assert run_json() == (0, {"clean": True, "drift": []})
    drift_of_every_kind(project)
    code, data = run_json()
    kinds = {entry["kind"] for entry in data["drift"]}
    assert (code, data["clean"]) == (1, False)
    assert kinds == {"missing", "edited", "outdated", "orphan", "cosmetic", "toolchain"}
    outdated = [entry for entry in data["drift"] if entry["kind"] == "outdated"]
    assert outdated and all(entry["reason"] == "the spec changed" for entry in outdated)
    assert run("check", "--json").stdout == run("check", "--output-format", "json").stdout


def test_the_document_of_a_failure_fits_the_schema_too(project: Path) -> None:
    respec("one", "heads: 4", "heads: 010")
    code, data = run_json()
    assert (code, data["diagnostics"][0]["line"]) == (2, 3)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"clean": True, "drift": [], "diagnostics": []}, SCHEMA)


@pytest.mark.parametrize("prepare", [drift_of_every_kind, lambda _: None], ids=["drift", "clean"])
def test_sarif_is_as_2_1_0_says(project: Path, prepare: Callable[[Path], None]) -> None:
    prepare(project)
    result = run("check", "--output-format", "sarif")
    log = json.loads(result.stdout)
    assert log["version"] == "2.1.0" and log["$schema"].endswith("sarif-2.1.0.json")
    (sarif_run,) = log["runs"]
    driver = sarif_run["tool"]["driver"]
    assert driver["name"] == "v4gen"
    rules = [rule["id"] for rule in driver["rules"]]
    assert len(rules) == len(set(rules)) and bool(sarif_run["results"]) == bool(result.exit_code)
    for entry in sarif_run["results"]:
        assert entry["ruleId"] == rules[entry["ruleIndex"]] and entry["message"]["text"]
        assert entry["level"] == ("note" if entry["ruleId"] in ("cosmetic", "toolchain") else "error")
        place = entry["locations"][0]["physicalLocation"]
        assert place["artifactLocation"]["uri"].startswith("out%20put/")  # relative, and a URI
        assert place["region"]["startLine"] >= 1 and place["region"]["startColumn"] >= 1


def test_github_annotates_the_first_line_that_differs(project: Path) -> None:
    drift_of_every_kind(project)
    lines = run("check", "--output-format", "github").stdout.splitlines()
    assert all(line.startswith(("::error file=out put/", "::notice file=out put/")) for line in lines)
    length = (project / "one" / "reference.py").read_text(encoding="utf-8").count("\n")
    edited = [line for line in lines if "title=edited" in line]
    assert len(edited) == 1 and f"one/reference.py,line={length}," in edited[0]


@pytest.mark.parametrize("output_format", ["github", "sarif"])
def test_a_bad_spec_is_told_in_the_format_asked_for(project: Path, output_format: str) -> None:
    respec("one", "heads: 4", "heads: 010")
    result = run("check", "--output-format", output_format)
    assert result.exit_code == 2 and result.stderr == ""
    assert "one.yaml" in result.stdout and "not-an-integer" in result.stdout


def test_notices_fail_only_a_strict_check(project: Path) -> None:
    code = code_on_disk(project, "one")
    record_evidence(project, "one", Evidence(code, "cpu", {"tilelang": "0.0.1", "torch": "0.0.1"}))
    path = project / "one" / "reference.py"
    path.write_text(path.read_text(encoding="utf-8") + "\n\n", encoding="utf-8")
    result = run("check")
    assert result.exit_code == 0 and "2 notices" in result.stdout and "cosmetic: " in result.stderr
    assert run("check", "--strict").exit_code == 1
    assert run_json()[1]["clean"] and not run_json("--strict")[1]["clean"]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_patch_makes_the_tree_clean(project: Path, newline: str) -> None:
    drift_of_every_kind(project)
    (project / "one" / "__init__.py").write_bytes(b"no text: \xff\xfe\n")
    for path in project.rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes().replace(b"\n", newline.encode()))
    assert run("check", "--patch", "fix.patch").exit_code == 1
    git("init", "--quiet")
    git("apply", "--check", "fix.patch")
    git("apply", "fix.patch")
    code, data = run_json()
    assert code == 0 and {entry["kind"] for entry in data["drift"]} == {"cosmetic", "stale-evidence"}
    if newline == "\n":
        assert json.loads(run("generate", "--force", "--json").stdout)["written"] == ["out put/one/_runtime.py"]


def test_a_patch_of_nothing_is_empty_and_of_elsewhere_refused(project: Path, tmp_path: Path) -> None:
    assert run("check", "--patch", "fix.patch").exit_code == 0
    assert Path("fix.patch").read_bytes() == b""
    elsewhere = tmp_path.parent / f"{tmp_path.name}-elsewhere"
    result = run("check", "--output", elsewhere, "--patch", "fix.patch")
    assert result.exit_code == 2 and "outside the project" in result.stderr
    assert run("check", "--patch", "absent/fix.patch").exit_code == 2


def test_the_lock_is_told_of_a_build_s_evidence_only_for_its_bytes(project: Path) -> None:
    from v4gen import pipeline

    pipeline.proof("one", project, "cpu")("digest")
    assert 'record = "digest"' in (project / LOCK_NAME).read_text(encoding="utf-8")
    proved = pipeline.proof("two", project, "cpu")
    respec("two", "topk: 8", "topk: 16")
    run("generate")
    proved("other digest")
    assert "other digest" not in (project / LOCK_NAME).read_text(encoding="utf-8")
    assert run("check").exit_code == 0


def test_generate_merges_on_request_and_a_conflict_is_1(project: Path) -> None:
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "-m", "generated")
    path = project / "one" / "tilelang_indexer.py"
    edited = path.read_text(encoding="utf-8")
    path.write_text(edited + "\n\nMINE = 1\n", encoding="utf-8")
    assert run("generate").exit_code == 2
    respec("one", "topk: 8", "topk: 16")
    assert run("generate").exit_code == 2
    assert run("generate", "--force", "--merge").exit_code == 2
    assert run("generate", "--merge").exit_code == 0
    merged = path.read_text(encoding="utf-8")
    assert "TOPK = 16" in merged and "MINE = 1" in merged
    path.write_text(merged.replace("TOPK = 16", "TOPK = 17"), encoding="utf-8")
    respec("one", "topk: 16", "topk: 32")
    result = run("generate", "--merge")
    assert result.exit_code == 1 and "conflict" in result.stderr
    assert "<<<<<<< edited" in path.read_text(encoding="utf-8")
    assert run("generate", "--force").exit_code == 0 and run("check").exit_code == 0


def test_a_spec_that_is_gone_takes_its_files_with_it(project: Path) -> None:
    Path("specs/three.yaml").unlink()
    (project / "three" / "mine.py").write_text("mine = 1\n")
    result = run("generate")
    assert result.exit_code == 0 and f"removed {Path('out put/three/reference.py')}" in result.stdout
    assert [path.name for path in (project / "three").iterdir()] == ["mine.py"]
    assert run("check").exit_code == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "# why\n" + text.replace("heads: 4", "heads: 4  # four"),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "---\n" + text + "layout: BSHD\n",
    ],
    ids=["comments", "CRLF", "a default"],
)
def test_a_spec_of_equal_values_is_no_drift(project: Path, change: Callable[[str], str]) -> None:
    path = Path("specs/one.yaml")
    path.write_bytes(change(path.read_text()).encode())
    assert run_json() == (0, {"clean": True, "drift": []})
    assert run("generate").stdout.endswith(", 0 files written\n")


@pytest.fixture
def other_templates(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """A function that replaces a text in every template."""
    caches = (package._environment, provenance._templates)

    def change(old: str, new: str) -> None:
        for module in (package, provenance):
            monkeypatch.setattr(module, "template_text", lambda name: template_text(name).replace(old, new))
        for cached in caches:
            cached.cache_clear()

    yield change
    for cached in caches:
        cached.cache_clear()


def test_a_changed_template_names_the_packages_and_why(
    project: Path, other_templates: Callable[[str, str], None]
) -> None:
    other_templates("best keys", "very best keys")
    code, data = run_json()
    assert code == 1 and {(entry["kind"], entry["reason"]) for entry in data["drift"]} == {
        ("outdated", "the templates changed")
    }
    assert {Path(entry["path"]).parent.name for entry in data["drift"]} == {"one", "two", "three"}


def test_a_template_whose_output_is_equal_is_no_drift(
    project: Path, other_templates: Callable[[str, str], None]
) -> None:
    before = (project / LOCK_NAME).read_bytes()
    other_templates("{% if plan.seed_interface %}", "{% if plan.seed_interface or false %}")
    assert run_json() == (0, {"clean": True, "drift": []})
    assert run("generate").stdout.endswith(", 0 files written\n")
    assert (project / LOCK_NAME).read_bytes() != before  # the lock tells the new templates' digest
    assert run("check").exit_code == 0


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_surroundings_are_no_drift(project: Path, umask: int) -> None:
    environment: Mapping[str, str] = {
        "TZ": "Asia/Kathmandu",
        "LC_ALL": "C",
        "PYTHONHASHSEED": "7",
        "PYTHONUTF8": "0",
        "HOME": str(project),
    }
    command = [sys.executable, "-m", "v4gen", "check", "--json"]
    done = subprocess.run(command, env=os.environ | environment, umask=umask, capture_output=True, text=True)
    assert json.loads(done.stdout) == {"clean": True, "drift": []}, done.stderr
