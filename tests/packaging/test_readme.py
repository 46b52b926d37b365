"""What README and CONTRIBUTING tell people to type exists."""

import re
from pathlib import Path

import click
import pytest

from v4gen.cli import main

ROOT = Path(__file__).parents[2]
DOCUMENTS = ["README.md", "CONTRIBUTING.md"]


def _code(document: str) -> str:
    """The fenced blocks and inline code of a document."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return "\n".join(re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_verbs_exist(document: str) -> None:
    named = set(re.findall(r"\bv4gen ([a-z]+)", _code(document)))
    assert named
    assert named <= set(main.list_commands(click.Context(main)))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_make_targets_exist(document: str) -> None:
    named = set(re.findall(r"\bmake ([a-z-]+)", _code(document)))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert named
    assert named <= targets


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    local = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
    assert [link for link in local if not (ROOT / link).exists()] == []


def test_readme_shows_the_shipped_spec() -> None:
    shown = re.search(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert shown
    assert shown[1] == (ROOT / "specs/deepseek_v4_flash.yaml").read_text(encoding="utf-8")


def test_the_first_screen_shows_what_the_commands_print() -> None:
    for name in ("demo", "test"):
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        block = text.partition(f"<!-- output: {name} -->")[2].partition("<!-- /output -->")[0]
        shown = block.replace("```text", "").replace("```", "").strip()
        assert shown, f"nothing is shown for `make {name}`"
