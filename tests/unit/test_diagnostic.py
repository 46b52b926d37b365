"""The one shape of everything that v4gen reports."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

from v4gen.diagnostic import Diagnostic, DiagnosticError, Severity, Span, did_you_mean


def test_a_span_counts_from_one() -> None:
    assert str(Span("x.yaml", 9, 3)) == "x.yaml:9:3"
    for line, column, end in ((0, 1, None), (1, 0, None), (1, 4, 3)):
        with pytest.raises(ValueError, match="a span"):
            Span("x.yaml", line, column, end)


def test_a_diagnostic_checks_itself() -> None:
    with pytest.raises(TypeError, match="Severity"):
        Diagnostic("error", "syntax", "no")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="kebab-case"):
        Diagnostic(Severity.ERROR, "Not_Kebab", "no")
    with pytest.raises(ValueError, match="message"):
        Diagnostic(Severity.ERROR, "syntax", " ")
    with pytest.raises(ValueError, match="span"):
        Diagnostic(Severity.ERROR, "syntax", "no", source_line="a: 1")


def test_an_error_carries_its_diagnostics_through_a_pickle() -> None:
    error = DiagnosticError([Diagnostic(Severity.ERROR, "syntax", "no", Span("x.yaml", 1, 2))])
    assert pickle.loads(pickle.dumps(error)).diagnostics == error.diagnostics
    assert str(error) == "x.yaml:1:2: error: no"
    with pytest.raises(ValueError, match="at least one"):
        DiagnosticError([])


@pytest.mark.parametrize(
    ("word", "meant"),
    [("head", "heads"), ("HEADS", "heads"), ("compress-ratio", "compress_ratio"), ("zzz", None), ("x" * 10_000, None)],
)
def test_a_near_word_is_suggested(word: str, meant: str | None) -> None:
    assert did_you_mean(word, ("heads", "compress_ratio")) == (f"did you mean `{meant}`?" if meant else None)


def test_importing_it_is_light() -> None:
    program = "import sys, v4gen.diagnostic; print({'pydantic', 'ruamel', 'jinja2', 'torch'} & {*sys.modules})"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"
