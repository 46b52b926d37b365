"""Document nodes → the Python values that the `Spec` model checks, and hints for what was spelt another way."""

from __future__ import annotations

import re

from v4gen.read.document import Items, Node, Pairs, Scalar

_INTEGER = re.compile(r"0|[1-9][0-9]*")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
# What YAML 1.2 reads as something other than a string, in any spelling.
_NOT_A_STRING = re.compile(
    r"|~|null|Null|NULL|true|True|TRUE|false|False|FALSE"
    r"|[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"
    r"|[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
_YES = frozenset(("true", "yes", "on", "y", "1"))
_NO = frozenset(("false", "no", "off", "n", "0"))
# int() refuses more digits than 4300, and no key takes more than twenty.
_MAX_DIGITS = 300


def to_value(node: Node) -> object:
    """The Python value of `node`: str, int, float, bool, tuple or dict.

    A plain scalar that is none of these in its one accepted spelling (`010`, `+4`, `~`, `True`) stays a `Scalar`, which
    no field accepts: reading it as a number would guess, and reading it as a string would hide the slip.
    """
    match node:
        case Pairs():
            return {entry.key.text: to_value(entry.value) for entry in node.entries}
        case Items():
            return tuple(to_value(item) for item in node.nodes)
        case Scalar():
            return _scalar_value(node)


def _scalar_value(scalar: Scalar) -> object:
    text = scalar.text
    if not scalar.plain:
        return text
    if text in ("true", "false"):
        return text == "true"
    if _INTEGER.fullmatch(text) and len(text) <= _MAX_DIGITS:
        return int(text)
    if _NUMBER.fullmatch(text):
        return float(text)
    return scalar if _NOT_A_STRING.fullmatch(text) else text


def integer_hint(node: Node) -> str | None:
    """How the integer that `node` seems to mean is written."""
    meant = _meant_integer(node.text) if isinstance(node, Scalar) else None
    if meant is None:
        return None
    return f"write `{meant}`: an integer is plain digits, with no quotes, sign, leading zero, exponent or separator"


def number_hint(node: Node) -> str | None:
    """How the number that `node` seems to mean is written."""
    try:
        meant = repr(float(node.text)) if isinstance(node, Scalar) else "nan"
    except ValueError:
        return None
    return f"write `{meant}`, unquoted" if _NUMBER.fullmatch(meant) else None


def boolean_hint(node: Node) -> str | None:
    """How the boolean that `node` seems to mean is written."""
    word = node.text.strip().casefold() if isinstance(node, Scalar) else ""
    meant = "true" if word in _YES else "false" if word in _NO else None
    return f"write `{meant}`: a boolean is `true` or `false`, unquoted" if meant else None


def string_hint(node: Node) -> str | None:
    """How what `node` spells is written as a string."""
    return f"quote it: `'{node.text}'`" if isinstance(node, Scalar) and node.plain and node.text else None


def _meant_integer(text: str) -> str | None:
    bare = text.strip().replace("_", "").replace(",", "")[:_MAX_DIGITS]
    for read in (int, _with_prefix, _whole):
        try:
            value = read(bare)
        except (ValueError, OverflowError):
            continue
        return str(value) if 0 <= value < 2**31 else None
    return None


def _with_prefix(text: str) -> int:
    return int(text, 0)


def _whole(text: str) -> int:
    value = float(text)
    if not value.is_integer():
        raise ValueError(f"{text} is no whole number")
    return int(value)
