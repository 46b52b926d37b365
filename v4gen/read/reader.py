"""Spec files → `Spec`s, or every diagnostic at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from v4gen.diagnostic import Diagnostic, DiagnosticError, Span, quoted
from v4gen.read.document import Document, Pairs, Scalar, parse_document
from v4gen.read.expected import listed, required_keys
from v4gen.read.explain import explain, explain_conflict
from v4gen.read.naming import folder_key
from v4gen.read.rules import conflicts
from v4gen.read.source import make_source, read_source
from v4gen.read.spec import CONFLICT, Spec, spec_defaults
from v4gen.read.values import to_value


def parse_spec(text: str, file: str) -> Spec:
    """The spec that the YAML `text` holds; `file` is the name to give in diagnostics.

    Raises DiagnosticError with everything that is wrong with it.
    """
    return _spec_of(parse_document(make_source(text, file)))


def read_spec(path: Path) -> Spec:
    """The spec in the file at `path`. Raises DiagnosticError, also when the file cannot be read."""
    return _spec_of(parse_document(read_source(path)))


def read_specs(paths: Sequence[Path]) -> tuple[Spec, ...]:
    """The specs in the files at `paths`, in that order; a file named twice is read once.

    Raises DiagnosticError with everything that is wrong with any of them, two specs for one output folder included.
    """
    documents: list[Document] = []
    specs: list[Spec] = []
    faults: list[Diagnostic] = []
    for path in {path.absolute(): path for path in paths}.values():
        try:
            document = parse_document(read_source(path))
            documents.append(document)
            specs.append(_spec_of(document))
        except DiagnosticError as error:
            faults += error.diagnostics
    faults += _collisions(documents)
    if faults:
        raise DiagnosticError(faults)
    return tuple(specs)


def _spec_of(document: Document) -> Spec:
    if not isinstance(document.root, Pairs):
        raise DiagnosticError([*document.faults, *_no_mapping(document)])
    values = to_value(document.root)
    assert isinstance(values, dict)
    spec, errors = _validate(values)
    faults = [*document.faults, *explain(errors, document)]
    good = {key: value for key, value in {**spec_defaults(), **values}.items() if key not in _first_steps(errors)}
    faults += [explain_conflict(conflict, document) for conflict in conflicts(good, values)]
    if faults or spec is None:
        raise DiagnosticError(sorted(faults, key=_position))
    return spec


def _validate(values: dict[str, object]) -> tuple[Spec | None, list[ErrorDetails]]:
    """The spec, or what is wrong with each of its values by itself.

    The model also finds conflicts between the keys, but only once every value is good; the reader looks for them
    itself, to report both at once and to point at what the spec wrote.
    """
    try:
        return Spec.model_validate(values), []
    except ValidationError as error:
        return None, [details for details in error.errors(include_url=False) if details["type"] != CONFLICT]


def _first_steps(errors: list[ErrorDetails]) -> set[str | int]:
    return {error["loc"][0] for error in errors}


def _no_mapping(document: Document) -> Iterator[Diagnostic]:
    hint = f"a spec is a mapping with at least the keys {listed(required_keys())}"
    if document.root is not None:
        start = replace(document.root.span, end_column=None)
        yield document.source.fault("not-a-mapping", "a spec is a mapping of keys to values", start, hint)
    elif not document.faults:
        yield document.source.fault("empty", "the spec is empty", Span(document.source.file, 1, 1), hint)


def _collisions(documents: Sequence[Document]) -> Iterator[Diagnostic]:
    taken: dict[str, tuple[str, Span]] = {}
    for document in documents:
        node = document.node(("name",))
        if not isinstance(node, Scalar) or not node.text or document.key(("name",)) is None:
            continue
        other, place = taken.setdefault(folder_key(node.text), (node.text, node.span))
        if place != node.span:
            message = f"the name {quoted(node.text)} leads to the same folder as {quoted(other)} of {place}"
            hint = "two names are different only if they differ in more than case, `-` and `_`"
            yield document.source.fault("name-collision", message, node.span, hint)


def _position(diagnostic: Diagnostic) -> tuple[int, int]:
    span = diagnostic.span
    return (span.line, span.column) if span else (0, 0)
