"""Pins written into a spec file's text, which keeps its comments, its order and its style."""

from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any

WIDTH = 1 << 16  # no line of a spec is folded
MARGIN = "  "


def with_pins(text: str, target: str, pins: Mapping[str, int], notes: Mapping[str, str]) -> str:
    """The text of a spec with these pins, and no others, for `target`.

    `notes` are comments, each above the pin that it is under; a pin that stays as it is, without a new note, keeps the
    comments that it has. Without pins there is no entry for the target, and without entries no `schedule`. What follows
    the target's last pin is about something else, and stays. The text must be that of a spec without faults.
    """
    line_end = "\r\n" if "\r\n" in text else "\n"
    if not (pins or _load(text).get("schedule")):
        return text
    lines = _in_blocks(text).replace("\r\n", "\n").split("\n")
    document = _load("\n".join(lines))
    entries: Any = document.get("schedule") or {}
    if target in entries:
        start, end = entries.lc.key(target)[0], _end(entries[target])
    elif entries:
        start = end = max(map(_end, entries.values()))
    else:
        start = end = len(lines) - (not lines[-1])
    margin = " " * entries.lc.key(next(iter(entries)))[1] if entries else MARGIN
    written: dict[str, Sequence[str]] = {name: [f"{margin}{MARGIN}{name}: {size}"] for name, size in pins.items()}
    if target in entries:
        before = _pin_lines(entries[target], lines, start + 1)
        written |= {name: before[name] for name, size in entries[target].items() if pins.get(name) == size}
    for name, note in notes.items():
        written[name] = [f"{margin}{MARGIN}# {note}", f"{margin}{MARGIN}{name}: {pins[name]}"]
    lines[start:end] = [f"{margin}{target}:"] * bool(pins) + [line for name in pins for line in written[name]]
    if pins and not entries:
        lines.insert(start, "schedule:")
    elif not pins and entries.keys() == {target}:
        del lines[document.lc.key("schedule")[0]]
    return line_end.join(lines)


def _pin_lines(sizes: Any, lines: Sequence[str], first: int) -> dict[str, Sequence[str]]:
    """Of each pin its line, with the comments above it; those of the first begin at line `first`."""
    found = {}
    for name in sizes:
        place = int(sizes.lc.key(name)[0])
        found[name] = lines[first : place + 1]
        first = place + 1
    return found


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
