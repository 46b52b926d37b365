"""Bytes → the text of a spec, with the lines as they were written for quoting in diagnostics."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from v4gen.diagnostic import Diagnostic, DiagnosticError, Severity, Span, did_you_mean

#: A spec is about fifteen lines. Far beyond that the file is something else, and the YAML scanner would take seconds.
MAX_BYTES = 16 * 1024

_BOM = "\ufeff"
# What YAML calls unprintable, and the line separators that YAML 1.1 and 1.2 count differently. LF is left out.
_REFUSED = re.compile("[^\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
# These reorder what a reader sees, so that emitted source could read otherwise than it runs.
_BIDI_CONTROLS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_UNPRINTABLE_CATEGORIES = frozenset(("Cc", "Cs", "Zl", "Zp"))


@dataclass(frozen=True, slots=True)
class Source:
    """A spec's text, ready for the YAML parser.

    `text` has LF line ends, no byte order mark, and a space for each refused character, so that its columns are those
    of `lines`, the text as it was written. `faults` names the refused characters.
    """

    file: str
    text: str
    lines: tuple[str, ...]
    faults: tuple[Diagnostic, ...]

    def fault(self, code: str, message: str, span: Span, hint: str | None = None) -> Diagnostic:
        """An error at `span`, with its source line."""
        return _fault(self.lines, code, message, span, hint)


def read_source(path: Path) -> Source:
    """Reads the file at `path`; at most MAX_BYTES of it, so that a device or a huge file does no harm.

    Raises DiagnosticError when it cannot be read or is not UTF-8.
    """
    file = path.as_posix()
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise DiagnosticError([_unreadable(path, error)]) from error
    if len(data) > MAX_BYTES:
        raise DiagnosticError([_too_large(file)])
    return make_source(_decode(data, file), file)


def make_source(text: str, file: str) -> Source:
    """The source that `text` is; `file` is the name to give in diagnostics. Raises DiagnosticError when too large."""
    if len(text) > MAX_BYTES:
        raise DiagnosticError([_too_large(file)])
    bare = text.removeprefix(_BOM).replace("\r\n", "\n")
    lines = tuple(bare.split("\n"))
    faults = list(_character_faults(lines, file))
    if text.startswith(_BOM):
        message, hint = "the spec starts with a byte order mark", "save the file as UTF-8 without one"
        faults.insert(0, _fault(lines, "byte-order-mark", message, Span(file, 1, 1), hint))
    return Source(file, _REFUSED.sub(" ", bare), lines, tuple(faults))


def unprintable(text: str) -> str | None:
    """The first character of `text`, named as in `U+0000`, that has no place in emitted source; None when all is well.

    Those are control characters other than a newline, lone surrogates, line separators, and bidirectional overrides.
    """
    for character in text:
        if character != "\n" and unicodedata.category(character) in _UNPRINTABLE_CATEGORIES:
            return f"U+{ord(character):04X}"
        if character in _BIDI_CONTROLS:
            return f"U+{ord(character):04X}"
    return None


def _character_faults(lines: tuple[str, ...], file: str) -> Iterator[Diagnostic]:
    """One fault a line and kind: a line indented with tabs is one mistake, however many tabs it took."""
    for number, line in enumerate(lines, 1):
        found: dict[str, int] = {}
        for match in _REFUSED.finditer(line):
            found.setdefault(match[0], match.start() + 1)
        for character, column in found.items():
            span = Span(file, number, column, column + 1)
            if character == "\t":
                yield _fault(lines, "tab", "a spec contains no tab characters", span, "indent and align with spaces")
            else:
                message = f"a spec contains no control characters, found U+{ord(character):04X}"
                yield _fault(lines, "control-character", message, span)


def _decode(data: bytes, file: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        good = data[: error.start].decode("utf-8").removeprefix(_BOM)
        lines = good.split("\n")
        span = Span(file, len(lines), len(lines[-1]) + 1)
        message = f"the spec is not valid UTF-8: unexpected byte 0x{data[error.start]:02x}"
        looks_utf16 = data.startswith((b"\xff\xfe", b"\xfe\xff"))
        hint = "this looks like UTF-16: save it as UTF-8" if looks_utf16 else "save the file as UTF-8"
        raise DiagnosticError([Diagnostic(Severity.ERROR, "not-utf8", message, span, hint=hint)]) from error


def _too_large(file: str) -> Diagnostic:
    message = f"a spec is at most {MAX_BYTES // 1024} KiB long; this file is no spec"
    return Diagnostic(Severity.ERROR, "too-large", message, Span(file, 1, 1))


def _unreadable(path: Path, error: OSError | ValueError) -> Diagnostic:
    file, hint = path.as_posix(), None
    if isinstance(error, FileNotFoundError):
        message = f"there is no file `{file}`"
        hint = _nearest_file(path)
    elif isinstance(error, IsADirectoryError) or (isinstance(error, PermissionError) and path.is_dir()):
        message = f"`{file}` is a directory, not a spec"
    else:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        message = f"cannot read `{file}`: {reason}"
    return Diagnostic(Severity.ERROR, "unreadable", message, hint=hint)


def _nearest_file(path: Path) -> str | None:
    try:
        neighbours = sorted(entry.as_posix() for entry in path.parent.glob("*.yaml"))
    except OSError:
        return None
    return did_you_mean(path.as_posix(), neighbours)


def _fault(lines: tuple[str, ...], code: str, message: str, span: Span, hint: str | None = None) -> Diagnostic:
    source_line = lines[span.line - 1] if span.line <= len(lines) else None
    return Diagnostic(Severity.ERROR, code, message, span, source_line, hint)
