"""The specs and templates that ship inside the package, wherever and however it is installed."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable

from v4gen.diagnostic import Diagnostic, DiagnosticError, Severity, did_you_mean


def spec_names() -> tuple[str, ...]:
    """The names of the shipped specs, sorted."""
    return tuple(sorted(_shipped_specs()))


def spec_text(name: str) -> str:
    """The YAML text of the shipped spec `name`, with LF line ends.

    Raises DiagnosticError when no such spec is shipped.
    """
    specs = _shipped_specs()
    if name not in specs:
        hint = did_you_mean(name, specs) or "the shipped specs are " + ", ".join(f"`{spec}`" for spec in sorted(specs))
        message = f"no shipped spec is called `{name}`"
        raise DiagnosticError([Diagnostic(Severity.ERROR, "unknown-spec", message, hint=hint)])
    return _text(specs[name])


def template_names() -> tuple[str, ...]:
    """The names of the template files, sorted."""
    return tuple(sorted(entry.name for entry in files("v4gen.templates").iterdir() if entry.name.endswith(".j2")))


def template_text(name: str) -> str:
    """The text of the template file `name` (such as `forward.py.j2`), with LF line ends.

    Raises FileNotFoundError when there is no such template: a fault of v4gen, not of a user.
    """
    for entry in files("v4gen.templates").iterdir():
        if entry.name == name and name.endswith(".j2"):
            return _text(entry)
    raise FileNotFoundError(f"v4gen has no template `{name}`")


def _shipped_specs() -> dict[str, Traversable]:
    entries = files("v4gen.specs").iterdir()
    return {entry.name.removesuffix(".yaml"): entry for entry in entries if entry.name.endswith(".yaml")}


def _text(entry: Traversable) -> str:
    # A checkout with CRLF line ends must give the same bytes downstream.
    return entry.read_bytes().decode("utf-8").replace("\r\n", "\n")
