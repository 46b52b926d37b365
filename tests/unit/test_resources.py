"""What ships inside the package."""

from __future__ import annotations

import pytest

from v4gen.diagnostic import DiagnosticError
from v4gen.read.reader import parse_spec
from v4gen.resources import spec_names, spec_text, template_text


def test_the_shipped_specs_are_named_after_what_they_hold() -> None:
    assert {"deepseek_v4_flash", "tiny"} <= set(spec_names())
    for name in spec_names():
        assert parse_spec(spec_text(name), f"{name}.yaml").name == name


def test_an_unknown_spec_is_refused_with_a_near_name() -> None:
    with pytest.raises(DiagnosticError) as caught:
        spec_text("tinny")
    assert caught.value.diagnostics[0].hint == "did you mean `tiny`?"


@pytest.mark.parametrize("name", ["nothing.py.j2", "__init__.py", "../specs/tiny.yaml"])
def test_only_templates_are_templates(name: str) -> None:
    with pytest.raises(FileNotFoundError, match="no template"):
        template_text(name)
