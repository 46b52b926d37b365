"""Pins written into a spec file's text, which keeps its comments, its order and its style."""

from collections.abc import Mapping
from io import StringIO
from typing import Any

WIDTH = 1 << 16  # no line of a spec is folded


def with_pins(text: str, target: str, pins: Mapping[str, int], notes: Mapping[str, str]) -> str:
    """The text of a spec with these pins, and no others, for `target`.

    `notes` are comments, each above the pin that it is under. Without pins there is no entry for the target, and
    without entries no `schedule`. The text must be that of a spec without faults.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.comments import CommentedMap

    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = WIDTH
    document = yaml.load(text)
    entries = document.get("schedule") or CommentedMap()
    entries.pop(target, None)
    entries.ca.items.pop(target, None)  # comments between it and its first pin
    if pins:
        sizes = CommentedMap(pins)
        for name, note in notes.items():
            sizes.yaml_set_comment_before_after_key(name, before=note, indent=4)
        entries[target] = sizes
        entries.fa.set_block_style()
    if entries:
        document["schedule"] = entries
    else:
        document.pop("schedule", None)
    return _dump(yaml, document, "\r\n" if "\r\n" in text else "\n")


def _dump(yaml: Any, document: Any, line_end: str) -> str:
    stream = StringIO()
    yaml.dump(document, stream)
    return stream.getvalue().replace("\r\n", "\n").replace("\n", line_end)
