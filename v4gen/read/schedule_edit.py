"""Pins written into a spec file's text, which keeps its comments, its order and its style."""

from collections.abc import Mapping
from io import StringIO
from typing import Any

WIDTH = 1 << 16  # no line of a spec is folded
MARGIN = "  "


def with_pins(text: str, target: str, pins: Mapping[str, int], notes: Mapping[str, str]) -> str:
    """The text of a spec with these pins, and no others, for `target`.

    `notes` are comments, each above the pin that it is under. Without pins there is no entry for the target, and
    without entries no `schedule`. Of comments, only those go that stand within the target's own entry; what follows its
    last pin is about something else. The text must be that of a spec without faults.
    """
    line_end = "\r\n" if "\r\n" in text else "\n"
    if not (pins or _load(text).get("schedule")):
        return text
    lines = _in_blocks(text).replace("\r\n", "\n").split("\n")
    document = _load("\n".join(lines))
    entries = document.get("schedule") or {}
    if target in entries:
        start, end = entries.lc.key(target)[0], _end(entries[target])
    elif entries:
        start = end = max(map(_end, entries.values()))
    else:
        start = end = len(lines) - (not lines[-1])
    margin = " " * entries.lc.key(next(iter(entries)))[1] if entries else MARGIN
    lines[start:end] = _entry(target, pins, notes, margin)
    if pins and not entries:
        lines.insert(start, "schedule:")
    elif not pins and entries.keys() == {target}:
        del lines[document.lc.key("schedule")[0]]
    return line_end.join(lines)


def _entry(target: str, pins: Mapping[str, int], notes: Mapping[str, str], margin: str) -> list[str]:
    lines = [f"{margin}{target}:"] if pins else []
    for name, size in pins.items():
        lines += [f"{margin}{MARGIN}# {notes[name]}"] if name in notes else []
        lines.append(f"{margin}{MARGIN}{name}: {size}")
    return lines


def _end(sizes: Any) -> int:
    """The line after the last pin of an entry in block style."""
    return 1 + max(int(sizes.lc.key(name)[0]) for name in sizes)


def _in_blocks(text: str) -> str:
    """The text with every entry of `schedule` on lines of its own, and without a `schedule` that is empty."""
    document = _load(text)
    entries = document.get("schedule")
    empty = [target for target, sizes in (entries or {}).items() if not sizes]
    if entries and not empty and not any(part.fa.flow_style() for part in (entries, *entries.values())):
        return text
    if "schedule" not in document:
        return text if text.endswith("\n") else f"{text}\n"
    for target in empty:
        del entries[target]
    for part in (entries, *entries.values()) if entries else ():
        part.fa.set_block_style()
    if not entries:
        del document["schedule"]
    stream = StringIO()
    _yaml().dump(document, stream)
    return stream.getvalue()


def _load(text: str) -> Any:
    return _yaml().load(text)


def _yaml() -> Any:
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = WIDTH
    return yaml
