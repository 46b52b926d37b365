"""Diagnostics as SARIF 2.1.0, which code scanning services take."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from v4gen import __version__
from v4gen.diagnostic import Diagnostic, Severity

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTICE: "note"}


def render_sarif(diagnostics: Sequence[Diagnostic]) -> str:
    """One run of v4gen with a result for each diagnostic; files are relative to the project's root."""
    rules = sorted({diagnostic.code for diagnostic in diagnostics})
    driver = {"name": "v4gen", "version": __version__, "rules": [{"id": rule} for rule in rules]}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(diagnostic, rules) for diagnostic in diagnostics],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _result(diagnostic: Diagnostic, rules: Sequence[str]) -> dict[str, Any]:
    message = diagnostic.message + (f" ({diagnostic.hint})" if diagnostic.hint else "")
    result: dict[str, Any] = {
        "ruleId": diagnostic.code,
        "ruleIndex": rules.index(diagnostic.code),
        "level": _LEVELS[diagnostic.severity],
        "message": {"text": message},
    }
    if span := diagnostic.span:
        region = {"startLine": span.line, "startColumn": span.column}
        if span.end_column is not None:
            region["endColumn"] = span.end_column
        place = {"artifactLocation": {"uri": quote(span.file)}, "region": region}
        result["locations"] = [{"physicalLocation": place}]
    return result
