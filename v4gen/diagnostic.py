"""The one shape in which every stage reports errors, findings and drift."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

_LONGEST_QUOTE = 40
_CODE = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


class Severity(StrEnum):
    """How bad a diagnostic is; the values are also GitHub's annotation levels."""

    ERROR = "error"
    WARNING = "warning"
    NOTICE = "notice"


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of one line of a file.

    `line` and `column` count from 1, in characters. `end_column` is the column after the last character, or None
    where only the start is known. Raises ValueError when a number is out of order.
    """

    file: str
    line: int
    column: int
    end_column: int | None = None

    def __post_init__(self) -> None:
        if self.line < 1 or self.column < 1:
            raise ValueError(f"a span counts from 1, not {self.line}:{self.column}")
        if self.end_column is not None and self.end_column < self.column:
            raise ValueError(f"a span that starts at column {self.column} cannot end before {self.end_column}")

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One thing to tell the user.

    `code` is stable and kebab-case, for programs; `message` is one sentence with code in backticks; `hint` says what
    to do about it; `source_line` is the text of the line that `span` points into. Raises ValueError or TypeError when
    a field cannot be printed in that form.
    """

    severity: Severity
    code: str
    message: str
    span: Span | None = None
    source_line: str | None = None
    hint: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.severity, Severity):
            raise TypeError(f"severity must be a Severity, not {self.severity!r}")
        if not _CODE.fullmatch(self.code):
            raise ValueError(f"a diagnostic's code is kebab-case, not {self.code!r}")
        if not self.message.strip():
            raise ValueError("a diagnostic needs a message")
        if self.source_line is not None and (self.span is None or "\n" in self.source_line):
            raise ValueError("a source line is one line, and needs a span that points into it")

    def __str__(self) -> str:
        place = f"{self.span}: " if self.span else ""
        return f"{place}{self.severity}: {self.message}"


class DiagnosticError(Exception):
    """Work that could not be done, with everything there is to say about why, in the order of the source."""

    diagnostics: tuple[Diagnostic, ...]

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        if not self.diagnostics:
            raise ValueError("a DiagnosticError needs at least one diagnostic")
        super().__init__(self.diagnostics)

    def __str__(self) -> str:
        return "\n".join(map(str, self.diagnostics))


def quoted(text: str) -> str:
    """`text` in backticks, on one line and cut to a length that leaves the sentence around it readable."""
    text = " ".join(text.split())
    return f"`{text if len(text) <= _LONGEST_QUOTE else text[: _LONGEST_QUOTE - 1] + '…'}`"


def did_you_mean(word: str, options: Iterable[str]) -> str | None:
    """A hint that names the option nearest to `word`, or None when none is near."""
    match = nearest(word, options)
    return f"did you mean `{match}`?" if match else None


def nearest(word: str, options: Iterable[str]) -> str | None:
    """The option that `word` most likely misspells: case and hyphens aside, then by similarity; None when none is."""
    import difflib

    folded = {_fold(option): option for option in options}
    # A word much longer than any option cannot resemble one, and comparing it would be slow.
    matches = difflib.get_close_matches(_fold(word[:64]), folded, n=1)
    return folded[matches[0]] if matches else None


def _fold(word: str) -> str:
    return word.casefold().replace("-", "_")
