"""Pins are written into a spec as a person would, and nothing else in it moves."""

from pathlib import Path

import pytest

from v4gen.read.reader import parse_spec
from v4gen.read.schedule_edit import with_pins

SPECS = sorted((Path(__file__).parents[2] / "specs").glob("*.yaml"))
PINS = {"scores_block_q": 1, "scores_block_n": 64, "backward_block_i": 32}
NOTES = {"scores_block_q": "scores: ahead", "backward_block_i": "backward: ahead"}
BLOCK = """\
schedule:
  sm_90a:
    # scores: ahead
    scores_block_q: 1
    scores_block_n: 64
    # backward: ahead
    backward_block_i: 32
"""


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_a_spec_keeps_all_but_its_pins(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert with_pins(text, "sm_90a", {}, {}) == text
    pinned = with_pins(text, "sm_90a", PINS, NOTES)
    assert pinned == text + BLOCK
    assert with_pins(pinned, "sm_90a", PINS, NOTES) == pinned
    assert with_pins(pinned, "sm_90a", {}, {}) == text


def test_other_targets_keep_theirs() -> None:
    text = (
        "schema: v4gen/1  # the first\nname: one\nheads: 4\ndim: 32\ntopk: 8\ncompress_ratio: 4\n"
        "schedule:\n  cpu:  # mine\n    scores_block_n: 8\nmask: causal   # last\n"
    )
    pinned = with_pins(text.replace("\n", "\r\n"), "sm_90a", {"scores_block_n": 64}, {})
    assert pinned == text.replace("8\nmask", "8\n  sm_90a:\n    scores_block_n: 64\nmask").replace("\n", "\r\n")
    found = parse_spec(pinned, "one.yaml").schedule
    assert {target: dict(sizes) for target, sizes in found.items()} == {
        "cpu": {"scores_block_n": 8},
        "sm_90a": {"scores_block_n": 64},
    }


COMMENTED = """\
name: one
schedule:
  # about the first target
  cpu:
    scores_block_n: 8  # mine

  # about the next target
  sm_90a:
    scores_block_n: 64

# about the mask
mask: causal
"""


@pytest.mark.parametrize(
    ("target", "entry"),
    [("cpu", "  cpu:\n    scores_block_n: 8  # mine\n"), ("sm_90a", "  sm_90a:\n    scores_block_n: 64\n")],
)
def test_comments_of_other_keys_stay(target: str, entry: str) -> None:
    assert with_pins(COMMENTED, target, {}, {}) == COMMENTED.replace(entry, "")
    again = f"  {target}:\n    # ahead\n    scores_block_n: 16\n"
    assert with_pins(COMMENTED, target, {"scores_block_n": 16}, {"scores_block_n": "ahead"}) == COMMENTED.replace(
        entry, again
    )
    added = "    scores_block_n: 64\n  sm_80:\n    scores_block_n: 32\n"
    expected = COMMENTED.replace("    scores_block_n: 64\n", added)
    assert with_pins(COMMENTED, "sm_80", {"scores_block_n": 32}, {}) == expected


@pytest.mark.parametrize(
    "schedule",
    [
        "schedule: {cpu: {scores_block_n: 8}}",
        "schedule: {cpu: {}}",
        "schedule: {}",
        "schedule:\n  cpu: {scores_block_n: 8}",
    ],
)
def test_a_schedule_on_one_line_is_unfolded(schedule: str) -> None:
    text = f"name: one\n{schedule}\nmask: causal\n"
    assert "schedule" not in with_pins(text, "cpu", {}, {}).replace("schedule: {}\n", "")
    pinned = with_pins(text, "cpu", {"scores_block_n": 16}, {})
    assert "schedule:\n  cpu:\n    scores_block_n: 16\n" in pinned and "mask: causal\n" in pinned


def test_a_pin_that_stays_keeps_its_comments() -> None:
    text = f"name: one\n{BLOCK}"
    unpinned = {name: size for name, size in PINS.items() if name.startswith("backward")}
    assert with_pins(text, "sm_90a", unpinned, {}).endswith(
        "  sm_90a:\n    # backward: ahead\n    backward_block_i: 32\n"
    )
    assert with_pins(text, "sm_90a", PINS, {}) == text
