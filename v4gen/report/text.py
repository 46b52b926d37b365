"""Diagnostics as text for a person: the place, the source line with a caret under it, and what to do."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from v4gen.diagnostic import Diagnostic, Severity, Span

#: A longer source line is cut around the caret.
MAX_WIDTH = 100

_BOLD, _RED, _YELLOW, _BLUE, _CYAN, _RESET = "\033[1m", "\033[1;31m", "\033[1;33m", "\033[1;34m", "\033[36m", "\033[0m"
_COLORS = {Severity.ERROR: _RED, Severity.WARNING: _YELLOW, Severity.NOTICE: _CYAN}


def render_diagnostics(diagnostics: Iterable[Diagnostic], color: bool) -> str:
    """The diagnostics one after another, without a final newline; with ANSI colours if `color`.

    Nothing that the diagnostics quote reaches the terminal as a control character.
    """
    return "\n".join(_render(diagnostic, _Paint(color)) for diagnostic in diagnostics)


class _Paint:
    """Wraps text in a colour, or leaves it."""

    def __init__(self, color: bool) -> None:
        self.color = color

    def __call__(self, style: str, text: str) -> str:
        return f"{style}{text}{_RESET}" if self.color and text else text


def _render(diagnostic: Diagnostic, paint: _Paint) -> str:
    span, severity = diagnostic.span, diagnostic.severity
    place = paint(_BOLD, f"{_printable(str(span))}: ") if span else ""
    lines = [place + paint(_COLORS[severity], f"{severity}:") + f" {_printable(diagnostic.message)}"]
    margin = " " * (len(str(span.line)) + 2 if span else 2)
    if span and diagnostic.source_line is not None:
        quote, caret = _excerpt(diagnostic.source_line, span)
        lines.append(paint(_BLUE, f" {span.line} |") + f" {quote}".rstrip())
        lines.append(paint(_BLUE, f"{margin}|") + " " + paint(_COLORS[severity], caret))
    if diagnostic.hint:
        lines.append(paint(_BLUE, f"{margin}=") + f" help: {_printable(diagnostic.hint)}")
    return "\n".join(lines)


def _excerpt(line: str, span: Span) -> tuple[str, str]:
    """What to print of `line`, and the carets for the line below it."""
    start = span.column - 1
    end = max(start + 1, min((span.end_column or span.column + 1) - 1, max(len(line), start + 1)))
    before, marked, after = (_printable(part) for part in (line[:start], line[start:end], line[end:]))
    if _width(before) > MAX_WIDTH // 2:
        before = "…" + before[-MAX_WIDTH // 2 :]
    room = max(1, MAX_WIDTH - _width(before))
    rest = marked + after
    quote = before + (rest if _width(rest) <= room else rest[: room - 1] + "…")
    return quote, " " * _width(before) + "^" * max(1, min(_width(marked), room))


def _printable(text: str) -> str:
    """`text` with a space for a tab and an escape for what a terminal would obey, hide or show as a plain space."""
    return "".join(_shown(character) for character in text.replace("\t", " "))


def _shown(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")


def _width(text: str) -> int:
    """The columns that `text` takes in a terminal: two for a wide character, none for a combining one."""
    return sum(_columns(character) for character in text)


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1
