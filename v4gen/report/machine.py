"""Diagnostics in the formats that programs read: JSON objects and GitHub's workflow commands."""

from __future__ import annotations

import json
from collections.abc import Iterable

from v4gen.diagnostic import Diagnostic


def diagnostic_object(diagnostic: Diagnostic) -> dict[str, str | int | None]:
    """The diagnostic as a JSON object; `line` and `column` count from 1, and what is unknown is null."""
    span = diagnostic.span
    return {
        "file": span.file if span else None,
        "line": span.line if span else None,
        "column": span.column if span else None,
        "severity": diagnostic.severity.value,
        "code": diagnostic.code,
        "message": diagnostic.message,
        "hint": diagnostic.hint,
    }


def render_json(diagnostics: Iterable[Diagnostic]) -> str:
    """The diagnostics as a JSON array, in ASCII so that no locale can fail to print it."""
    return json.dumps([diagnostic_object(diagnostic) for diagnostic in diagnostics], indent=2)


def render_github(diagnostics: Iterable[Diagnostic]) -> str:
    """The diagnostics as GitHub annotations, one a line: `::error file=…,line=…,col=…,title=…::message`."""
    return "\n".join(map(_annotation, diagnostics))


def _annotation(diagnostic: Diagnostic) -> str:
    properties: dict[str, str | int] = {}
    if span := diagnostic.span:
        properties |= {"file": span.file, "line": span.line, "col": span.column}
        if span.end_column is not None:
            properties["endColumn"] = span.end_column
    properties["title"] = diagnostic.code
    settings = ",".join(f"{key}={_escaped_property(str(value))}" for key, value in properties.items())
    message = diagnostic.message + (f" ({diagnostic.hint})" if diagnostic.hint else "")
    return f"::{diagnostic.severity} {settings}::{_escaped(message)}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escaped_property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")
