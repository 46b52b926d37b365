"""Values → the text of a commented spec file, as a person would have written it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from v4gen.read.expected import options
from v4gen.read.schema import SCHEMA_FILE, SCHEMA_ID

# Words that YAML, old or new, reads as something other than a string.
_NOT_STRINGS = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_]*")

# What each key means, where its words or its name do not say it. Every key of the list is written, in this order.
_COMMENTS: Mapping[str, str] = {
    "name": "of the package and its folder",
    "interface": "",
    "description": "for the package's docstrings",
    "origin": "where the numbers are published",
    "heads": "H, index heads",
    "dim": "D, width of a head: a multiple of 16",
    "topk": "K, keys selected for each query",
    "compress_ratio": "r, tokens that one key stands for",
    "layout": "",
    "mask": "",
    "width": "",
    "order": "",
    "dtype": "of q and k; weights and scores are float32",
    "targets": "",
}

_COLUMN = 22  # of the comments


def draft_spec(values: Mapping[str, object]) -> str:
    """The text of a spec with `values`, by the keys of a spec file; what is left out has its default.

    The text is not checked: reading it is what finds a bad value, and tells its line.
    """
    lines = [f"# yaml-language-server: $schema={SCHEMA_FILE}", f"schema: {SCHEMA_ID}"]
    lines += [_line(key, values[key], comment) for key, comment in _COMMENTS.items() if key in values]
    lines += [line for key, value in values.items() if key not in _COMMENTS for line in _more(key, value)]
    return "\n".join(lines) + "\n"


def _line(key: str, value: object, comment: str) -> str:
    entry = f"{key}: {_scalar(value)}"
    told = " | ".join(options((key, 0) if isinstance(value, Sequence) and not isinstance(value, str) else (key,)))
    note = "; ".join(part for part in (told, comment) if part)
    return f"{entry:<{_COLUMN - 1}} # {note}" if note else entry


def _more(key: str, value: object) -> Iterator[str]:
    """A key without a comment, such as a nested one."""
    if not isinstance(value, Mapping):
        yield f"{key}: {_scalar(value)}"
        return
    yield f"{key}:"
    for name, inner in value.items():
        yield from (f"  {line}" for line in _more(str(name), inner))


def _scalar(value: object) -> str:
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) and value.lower() not in _NOT_STRINGS
        return value if plain else json.dumps(value, ensure_ascii=False)
    if isinstance(value, Sequence):
        return f"[{', '.join(map(_scalar, value))}]"
    return json.dumps(value)
