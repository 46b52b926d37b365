"""Digests: one way to name text and data by their content, the same on every machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from enum import Enum
from typing import Any


def digest_bytes(data: bytes) -> str:
    """sha256 of a text's bytes, line endings normalised: a checkout with CRLF is the same text."""
    return hashlib.sha256(data.replace(b"\r\n", b"\n")).hexdigest()


def digest_text(text: str) -> str:
    """sha256 of `text` in UTF-8, line endings normalised."""
    return digest_bytes(text.encode("utf-8"))


def digest_data(data: Any) -> str:
    """sha256 of JSON-like data as canonical JSON: the order of a mapping's keys does not count."""
    return digest_text(json.dumps(data, sort_keys=True, ensure_ascii=True, separators=(",", ":"), default=_plain))


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"no canonical form of {value!r}")
