"""The guide: what scripts make of it is current, its links lead somewhere, and it builds without a network."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from v4gen.cli import COMMANDS, PANELS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_spec_reference_is_that_of_the_schema() -> None:
    reference = script("reference")
    text = (DOCS / "specs.md").read_text(encoding="utf-8")
    assert reference.page(text) == text, "run `python docs/reference.py`"


def test_the_table_of_targets_is_that_of_the_records() -> None:
    targets = script("targets")
    text = (DOCS / "specs.md").read_text(encoding="utf-8")
    assert targets.page(text) == text, "run `python docs/targets.py`"


def test_the_table_of_targets_says_no_more_than_the_records() -> None:
    targets = script("targets")
    machine = {"device": "cuda", "name": "H"}

    def validation(target: str, *, passed: bool = True) -> dict[str, Any]:
        return {"machine": machine, "validation": {"spec": "tiny", "passed": passed, "target": target}}

    def bench(target: str) -> dict[str, Any]:
        return {"machine": machine, "command": ["v4gen", "bench", "specs/tiny.yaml"], "bench": {"target": target}}

    def kernels(target: str, *stages: str, problem: str = "") -> dict[str, Any]:
        results = [{"identity": str(n), "stage": stage, "problem": problem} for n, stage in enumerate(stages)]
        named = [{"spec": "tiny", "target": target, "identity": result["identity"]} for result in results]
        return {"families": {"kernels": named, "results": results}}

    def row(*records: dict[str, Any]) -> dict[str, str]:
        header, _, *lines = targets.table(records)
        (line,) = (line for line in lines if line.startswith("| `tiny` |"))
        cells = [cell.strip(" `") for cell in header.strip("|").split("|")]
        return dict(zip(cells, [cell.strip() for cell in line.strip("|").split("|")], strict=True))

    assert set(row().values()) == {"`tiny`", ""}
    assert row(validation("sm_80"))["sm_80"] == "run (H)"
    assert row(validation("sm_80"), bench("sm_80"))["sm_80"] == "run, measured (H)"
    for command in (
        {"command": ["v4gen", "bench"]},
        {"command": ["v4gen", "bench"], "bench": {"target": "sm_80", "spec": "tiny"}},
    ):
        told = "run, measured (H)" if "bench" in command else "run (H)"
        assert row(validation("sm_80"), bench("sm_80") | command)["sm_80"] == told
    assert row(bench("sm_80"))["sm_80"] == ""  # nothing says that what was timed is right
    assert row(validation("sm_80", passed=False))["sm_80"] == ""
    assert set(row(validation("")).values()) == {"`tiny`", ""}  # on a GPU, of whatever target
    assert row({"machine": {"device": "cpu"}} | {"validation": {"spec": "tiny", "passed": True}})["cpu"] == "run"
    assert row(kernels("sm_80", "compiled", "compiled"))["sm_80"] == "compiled"
    assert row(kernels("sm_80", "compiled", "lowered"))["sm_80"] == "lowered"
    assert row(kernels("sm_80", "compiled", "failed"))["sm_80"] == ""
    assert row(kernels("sm_80", "compiled", problem="8 bytes spilled"))["sm_80"] == ""
    assert row(kernels("sm_80", "compiled"), validation("sm_80"))["sm_80"] == "run (H)"


def test_the_pictures_are_as_drawn() -> None:
    drawn = script("pictures").pictures()
    assert {path.name for path in (DOCS / "pictures").iterdir()} == set(drawn)
    for name, text in drawn.items():
        assert (DOCS / "pictures" / name).read_text(encoding="utf-8") == text, "run `python docs/pictures.py`"


def test_readme_has_the_numbers_of_its_record() -> None:
    benchmarks = script("benchmarks")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert benchmarks.page(text) == text, "run `python docs/benchmarks.py`"
    assert benchmarks.page(re.sub(r"\d ms \|", "9 ms |", text)) == text


def test_the_charts_are_of_readmes_record() -> None:
    benchmarks = script("benchmarks")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    source = benchmarks.shown_record(text).source.encode()
    charts = sorted((DOCS / "charts").iterdir())
    assert {path.suffix for path in charts} == {".svg", ".png"}
    for path in charts:
        assert source in path.read_bytes(), f"{path.name} is of another record: run `python docs/benchmarks.py`"


def test_every_page_is_in_the_navigation() -> None:
    navigation = re.findall(r": (\w+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(navigation) == [page.name for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        assert "://" in link or (DOCS / link).is_file(), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_nothing_is_loaded_from_elsewhere(page: Path) -> None:
    assert not re.search(r"!\[[^\]]*\]\(\w+://|<(script|link|img|iframe)\b", page.read_text(encoding="utf-8"))


def test_every_command_is_described_and_in_one_panel() -> None:
    table = (DOCS / "commands.md").read_text(encoding="utf-8").partition("\n\nWithout SPEC")[0]
    described = re.findall(r"^\| `([a-z]+)` \|", table, re.MULTILINE)
    assert sorted(name for panel in PANELS.values() for name in panel) == sorted(COMMANDS)
    assert sorted(described) == sorted(COMMANDS)


def test_the_guide_builds(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="mkdocs-material is not installed: it is in the extra `docs`")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    loaded = r"<(?:script|img|iframe)[^>]* src=\"?https?://|<link[^>]*stylesheet[^>]* href=\"?https?://|@import"
    assert not [page for page in pages if re.search(loaded, page.read_text(encoding="utf-8"))]
