"""The report of a validation as a file."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from v4gen.diagnostic import Diagnostic, DiagnosticError, Severity
from v4gen.emit.write import Change, write
from v4gen.report.findings import Findings
from v4gen.report.markdown import render_markdown
from v4gen.report.page import render_page

Renderer = Callable[[Sequence[Findings]], str]

RENDERERS: dict[str, Renderer] = {".html": render_page, ".md": render_markdown}

_NO_TEXT = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


def renderer(path: Path) -> Renderer:
    """What makes the report for `path`, by its ending. Raises DiagnosticError for an ending that no report has."""
    if path.suffix not in RENDERERS:
        hint = "let it end in .html for a page or .md for Markdown"
        problem = f"`--report`: `{path.as_posix()}` is no report's name"
        raise DiagnosticError([Diagnostic(Severity.ERROR, "report-format", problem, hint=hint)])
    return RENDERERS[path.suffix]


def require_writable(path: Path) -> None:
    """Raise DiagnosticError unless a file can be put at `path`: a validation takes minutes, and is not to be lost.

    Its folder is made if there is none. That a file is made there and removed is the one sure test: permissions
    tell nothing about a read-only disk, nor to the superuser.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp"):
            pass
    except OSError as error:
        problem = f"cannot write `{path.as_posix()}`: {error.strerror}"
        raise DiagnosticError([Diagnostic(Severity.ERROR, "cannot-write", problem)]) from error


def write_report(path: Path, reports: Sequence[Findings]) -> None:
    """Write the report whole or not at all. What a message holds that is no text becomes the replacement character."""
    write([Change(path, _NO_TEXT.sub("\ufffd", renderer(path)(reports)))])
