"""Diagnostics as text, JSON and GitHub annotations."""

from __future__ import annotations

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from v4gen.diagnostic import Diagnostic, Severity, Span
from v4gen.report.machine import diagnostic_object, render_github, render_json
from v4gen.report.text import MAX_WIDTH, render_diagnostics

LEADING_ZERO = Diagnostic(
    Severity.ERROR,
    "not-an-integer",
    "`heads` must be an integer from 1 to 128, found `010`",
    Span("specs/x.yaml", 9, 8, 11),
    "heads: 010  # why",
    "write `10`",
)


def test_text_shows_place_line_caret_and_help() -> None:
    assert render_diagnostics([LEADING_ZERO], color=False) == (
        "specs/x.yaml:9:8: error: `heads` must be an integer from 1 to 128, found `010`\n"
        " 9 | heads: 010  # why\n"
        "   |        ^^^\n"
        "   = help: write `10`"
    )


def test_text_without_a_place() -> None:
    missing = Diagnostic(Severity.WARNING, "unreadable", "there is no file `x`", hint="did you mean `y`?")
    assert render_diagnostics([missing, missing], color=False) == "\n".join(
        ["warning: there is no file `x`", "  = help: did you mean `y`?"] * 2
    )


def test_color_adds_only_escapes() -> None:
    colored = render_diagnostics([LEADING_ZERO], color=True)
    assert colored != render_diagnostics([LEADING_ZERO], color=False)
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == render_diagnostics([LEADING_ZERO], color=False)


def carets(line: str, column: int, end: int | None = None) -> tuple[str, str]:
    shown = render_diagnostics([Diagnostic(Severity.ERROR, "x", "m", Span("f", 1, column, end), line)], color=False)
    _, quote, mark = shown.split("\n")
    return quote[len(" 1 | ") :], mark[len("   | ") :]


def test_carets_stand_under_wide_and_combining_characters() -> None:
    assert carets("日本: x", 5, 6) == ("日本: x", "      ^")
    assert carets("e\u0301: x", 5, 6) == ("e\u0301: x", "   ^")
    assert carets("a:\tx", 4, 5) == ("a: x", "   ^")


def test_a_caret_may_stand_behind_the_line() -> None:
    assert carets("heads:", 7) == ("heads:", "      ^")


def test_a_long_line_is_cut_around_the_caret() -> None:
    quote, mark = carets("a" * 300 + "b" + "c" * 300, 301, 302)
    assert len(quote) <= MAX_WIDTH + 1
    assert quote[mark.index("^")] == "b"
    quote, mark = carets("key: " + "1" * 500, 6, 506)
    assert len(quote) <= MAX_WIDTH
    assert len(mark) <= MAX_WIDTH


@given(st.text(max_size=40), st.integers(1, 50), st.integers(0, 20))
def test_no_control_character_reaches_the_terminal(text: str, column: int, length: int) -> None:
    line = text.replace("\n", " ")
    shown = render_diagnostics(
        [Diagnostic(Severity.ERROR, "x", f"m{text}", Span("f", 1, column, column + length), line, text or None)], False
    )
    assert all(character == "\n" or character.isprintable() for character in shown)


def test_json_has_every_field_and_only_ascii() -> None:
    assert json.loads(render_json([LEADING_ZERO])) == [
        {
            "file": "specs/x.yaml",
            "line": 9,
            "column": 8,
            "severity": "error",
            "code": "not-an-integer",
            "message": LEADING_ZERO.message,
            "hint": "write `10`",
        }
    ]
    nowhere = diagnostic_object(Diagnostic(Severity.NOTICE, "note", "été \ud800"))
    assert (nowhere["file"], nowhere["line"], nowhere["column"], nowhere["hint"]) == (None, None, None, None)
    assert render_json([Diagnostic(Severity.NOTICE, "note", "été \ud800")]).isascii()
    assert json.loads(render_json([])) == []


def test_github_annotations_are_escaped() -> None:
    odd = Diagnostic(Severity.NOTICE, "note", "50 %\nmore: a, b", Span("a,b:c%.yaml", 1, 2))
    assert render_github([odd, LEADING_ZERO]).split("\n") == [
        "::notice file=a%2Cb%3Ac%25.yaml,line=1,col=2,title=note::50 %25%0Amore: a, b",
        "::error file=specs/x.yaml,line=9,col=8,endColumn=11,title=not-an-integer::"
        + LEADING_ZERO.message
        + " (write `10`)",
    ]
    assert render_github([Diagnostic(Severity.ERROR, "x", "m")]) == "::error title=x::m"
