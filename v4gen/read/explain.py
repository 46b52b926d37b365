"""What pydantic found wrong → diagnostics in the terms of the spec's text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic_core import ErrorDetails

from v4gen.diagnostic import Diagnostic, Severity, Span, did_you_mean, nearest, quoted
from v4gen.read.document import Document, Items, Node, Pairs, Scalar
from v4gen.read.expected import Path, expected, keys, listed, options, required_keys
from v4gen.read.rules import Conflict
from v4gen.read.values import boolean_hint, integer_hint, number_hint, string_hint

# How pydantic ends the path to a mapping's key, as opposed to its value.
_KEY = "[key]"

# pydantic's error type → the code of the diagnostic.
_CODES = {
    "int_type": "not-an-integer",
    "float_type": "not-a-number",
    "bool_type": "not-a-boolean",
    "string_type": "not-a-string",
    "tuple_type": "not-a-list",
    "model_type": "not-a-mapping",
    "mapping_type": "not-a-mapping",
    "dict_type": "not-a-mapping",
    "literal_error": "unknown-value",
    "too_short": "empty-list",
    "multiple_of": "out-of-range",
    "greater_than_equal": "out-of-range",
    "less_than_equal": "out-of-range",
}
_HINTS = {"int_type": integer_hint, "float_type": number_hint, "bool_type": boolean_hint, "string_type": string_hint}


def explain(errors: Sequence[ErrorDetails], document: Document) -> Iterator[Diagnostic]:
    """A diagnostic for each of `errors`, and one for all missing keys together."""
    missing = [str(error["loc"][-1]) for error in errors if error["type"] == "missing"]
    # A misspelt key is one mistake, not also a missing one.
    missing = [key for key in missing if key not in _meant_keys(errors)]
    if missing:
        yield _missing(missing, document)
    already = {_position(fault.span) for fault in document.faults if fault.span}
    for error in errors:
        if error["type"] != "missing":
            diagnostic = _explain_one(error, document)
            # What stands on a refused anchor, tag or alias is refused already.
            if diagnostic.span is None or _position(diagnostic.span) not in already:
                yield diagnostic


def explain_conflict(conflict: Conflict, document: Document) -> Diagnostic:
    """The diagnostic for `conflict`, at the key to blame or, where that is a default, at what contradicts it."""
    blamed = conflict.key if document.key((conflict.key,)) else conflict.because
    span = document.span((blamed,))
    return document.source.fault(conflict.code, conflict.message, span, conflict.hint)


def _explain_one(error: ErrorDetails, document: Document) -> Diagnostic:
    path, context = error["loc"], error.get("ctx", {})
    if error["type"] == "extra_forbidden":
        return _unknown_key(path, keys(path[:-1]), document)
    if "message" in context:
        return document.source.fault(error["type"], context["message"], _blamed(path, document), context["hint"])
    if path[-1] == _KEY:
        return _unknown_key(path[:-1], keys(path[:-2]), document)
    node = document.node(path)
    assert node is not None, "a value that pydantic refused stands in the document"
    message = f"`{_label(path)}` must be {expected(path)}, found {_found(node)}"
    return document.source.fault(_CODES[error["type"]], message, node.span, _hint(error["type"], path, node))


def _hint(kind: str, path: Path, node: Node) -> str | None:
    if kind in _HINTS:
        return _HINTS[kind](node)
    if kind == "literal_error" and isinstance(node, Scalar):
        return did_you_mean(node.text, options(path)) or (None if options(path) else boolean_hint(node))
    return None


def _missing(missing: Sequence[str], document: Document) -> Diagnostic:
    message = f"missing required key{'s' if len(missing) > 1 else ''} {listed(missing)}"
    hint = f"a spec has at least {listed(required_keys())}"
    # There is no line to quote: the fault is that it is not there.
    return Diagnostic(Severity.ERROR, "missing-key", message, document.span(()), hint=hint)


def _unknown_key(path: Path, known: Sequence[str], document: Document) -> Diagnostic:
    key, within = str(path[-1]), _label(path[:-1])
    message = f"unknown key {quoted(key)}" + (f" in `{within}`" if within else "")
    hint = did_you_mean(key, known) or f"the keys here are {listed(known)}"
    return document.source.fault("unknown-key", message, _blamed((*path, _KEY), document), hint)


def _blamed(path: Path, document: Document) -> Span:
    """Where the value at `path` stands, or the key itself where `path` ends in pydantic's mark for one."""
    key = document.key(path[:-1]) if path[-1] == _KEY else None
    return key.span if key else document.span(path)


def _meant_keys(errors: Sequence[ErrorDetails]) -> set[str | None]:
    unknown = [error["loc"] for error in errors if error["type"] == "extra_forbidden"]
    return {nearest(str(path[0]), keys(())) for path in unknown if len(path) == 1}


def _label(path: Path) -> str:
    label = ""
    for step in path:
        label += f"[{step}]" if isinstance(step, int) else f".{step}" if label else step
    return label


def _found(node: Node) -> str:
    match node:
        case Pairs():
            return "a mapping"
        case Items():
            return "a list" if node.nodes else "an empty list"
        case Scalar(plain=True, text=""):
            return "nothing"
        case Scalar(plain=True):
            return quoted(node.text)
        case Scalar():
            return f"the string {quoted(node.text)}"


def _position(span: Span) -> tuple[int, int]:
    return span.line, span.column
