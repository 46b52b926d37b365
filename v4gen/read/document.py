"""YAML text → a tree that knows where each key and value stood and how each scalar was spelt.

The tree is built from the parser's events: values stay text, so no YAML resolver decides that `010` is eight or ten,
nothing is ever constructed, and no depth of nesting can exhaust the stack.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from v4gen.diagnostic import Diagnostic, Span
from v4gen.read.source import Source

if TYPE_CHECKING:
    from ruamel.yaml.error import StringMark

#: A spec nests three deep (`schedule: {sm_90a: {stages: 2}}`).
MAX_DEPTH = 8


@dataclass(frozen=True, slots=True)
class Scalar:
    """A value without parts. `text` is the source text where `plain`, and the unquoted content otherwise."""

    span: Span
    text: str
    plain: bool = True


@dataclass(frozen=True, slots=True)
class Items:
    """A YAML sequence."""

    span: Span
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """One `key: value` of a mapping."""

    key: Scalar
    value: Node


@dataclass(frozen=True, slots=True)
class Pairs:
    """A YAML mapping in source order; its keys are distinct scalars."""

    span: Span
    entries: tuple[Entry, ...]

    def get(self, key: str) -> Entry | None:
        """The entry whose key reads `key`."""
        return next((entry for entry in self.entries if entry.key.text == key), None)


Node = Scalar | Items | Pairs


@dataclass(frozen=True, slots=True)
class Document:
    """A spec's text, its tree (None when the text has none) and what is wrong with it as YAML."""

    source: Source
    root: Node | None
    faults: tuple[Diagnostic, ...]

    def node(self, path: tuple[str | int, ...]) -> Node | None:
        """The value at `path` (keys and list positions from the root), or the deepest one on the way to it."""
        node = self.root
        for step in path:
            child = _child(node, step)
            if child is None:
                break
            node = child
        return node

    def key(self, path: tuple[str | int, ...]) -> Scalar | None:
        """The key that the last step of `path` names, as it stands in the text."""
        parent = self.node(path[:-1])
        entry = parent.get(str(path[-1])) if isinstance(parent, Pairs) else None
        return entry.key if entry else None

    def span(self, path: tuple[str | int, ...]) -> Span:
        """Where the value at `path`, or the deepest one on the way to it, stands; a whole mapping, where it starts."""
        node = self.node(path)
        return node.span if node else Span(self.source.file, 1, 1)


def parse_document(source: Source) -> Document:
    """Parses `source` as one YAML 1.2 document, collecting everything that a spec may not contain.

    Never raises for the text's sake. After a control character or a syntax error there is no tree: the text is not
    what its author meant, and more to say about it would be noise.
    """
    if any(fault.code == "control-character" for fault in source.faults):
        return Document(source, None, source.faults)
    builder = _Builder(source)
    try:
        for event in _events(source.text):
            builder.take(event)
    except _Stop:
        pass
    except Exception as error:
        # The scanner also lets ValueError and OverflowError escape, from escapes such as "\UFFFFFFFF".
        builder.root = None
        # Characters already refused may be all that is wrong with the syntax.
        if not source.faults:
            builder.faults.append(_syntax_fault(error, builder.last, source))
    return Document(source, builder.root, (*source.faults, *builder.faults))


class _Stop(Exception):
    """Reading on would tell the user nothing."""


def _events(text: str) -> Iterator[Any]:
    from ruamel.yaml import YAML

    yield from YAML(typ="safe", pure=True).parse(text)


@dataclass(slots=True)
class _Open:
    """A mapping or sequence whose end is still to come; a mapping's keys and values alternate in `nodes`."""

    span: Span
    is_mapping: bool
    nodes: list[Node] = field(default_factory=list)


class _Builder:
    """Builds the tree from the events, with a stack of its own in place of recursion."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.root: Node | None = None
        self.faults: list[Diagnostic] = []
        self.last = Span(source.file, 1, 1)
        self.open: list[_Open] = []
        self.documents = 0

    def take(self, event: Any) -> None:
        span = self.last = _span(self.source.file, event.start_mark, event.end_mark)
        match type(event).__name__:
            case "ScalarEvent":
                self.refuse_properties(event, span)
                self.add(Scalar(span, event.value, plain=event.style is None))
            case "MappingStartEvent" | "SequenceStartEvent" as kind:
                self.refuse_properties(event, span)
                self.descend(_Open(_start(span), kind == "MappingStartEvent"))
            case "MappingEndEvent" | "SequenceEndEvent":
                self.ascend()
            case "AliasEvent":
                self.fault("alias", f"a spec has no aliases, found `*{event.anchor}`", span, "write the value out")
                self.add(Scalar(span, f"*{event.anchor}"))
            case "DocumentStartEvent":
                self.start_document(span)

    def fault(self, code: str, message: str, span: Span, hint: str | None = None) -> None:
        self.faults.append(self.source.fault(code, message, span, hint))

    def start_document(self, span: Span) -> None:
        self.documents += 1
        if self.documents > 1:
            self.fault("several-documents", "a spec file holds one document, and a second starts here", span)
            raise _Stop
        for number, line in enumerate(self.source.lines[: span.line - 1], 1):
            if line.startswith("%"):
                where = Span(span.file, number, 1, len(line) + 1)
                self.fault("directive", "a spec has no YAML directives", where, "remove the line")

    def refuse_properties(self, event: Any, span: Span) -> None:
        # One fault a node: what carries a tag and an anchor has one thing wrong with it, and one place.
        if event.tag is not None:
            found = event.tag.replace("tag:yaml.org,2002:", "!!")
            self.fault("tag", f"a spec has no tags, found `{found}`", _start(span), "write the plain value")
        elif event.anchor is not None:
            self.fault("anchor", f"a spec has no anchors, found `&{event.anchor}`", _start(span), "remove the anchor")

    def add(self, node: Node) -> None:
        if self.open:
            self.open[-1].nodes.append(node)
        else:
            self.root = node

    def descend(self, opened: _Open) -> None:
        if len(self.open) == MAX_DEPTH:
            self.fault("too-deep", f"a spec nests at most {MAX_DEPTH} levels deep", opened.span)
            raise _Stop  # inside the only document, so there is no root yet
        self.open.append(opened)

    def ascend(self) -> None:
        closed = self.open.pop()
        self.add(self.mapping(closed) if closed.is_mapping else Items(closed.span, tuple(closed.nodes)))

    def mapping(self, closed: _Open) -> Pairs:
        entries: dict[str, Entry] = {}
        for key, value in zip(closed.nodes[::2], closed.nodes[1::2], strict=True):
            if not isinstance(key, Scalar):
                self.fault("complex-key", "a key is a plain word", key.span)
            elif key.text == "<<" and key.plain:
                self.fault("merge-key", "a spec has no merge keys (`<<`)", key.span, "write the keys out")
            elif key.text in entries:
                hint = f"it is first given on line {entries[key.text].key.span.line}"
                self.fault("duplicate-key", f"`{key.text}` is given twice", key.span, hint)
            else:
                entries[key.text] = Entry(key, _place_beside(key, value))
        return Pairs(closed.span, tuple(entries.values()))


def _place_beside(key: Scalar, value: Node) -> Node:
    """An absent value stands behind its key's colon; the parser puts it where the next token is."""
    absent = isinstance(value, Scalar) and value.plain and not value.text
    if not absent or key.span.end_column is None:
        return value
    return replace(value, span=Span(key.span.file, key.span.line, key.span.end_column + 1))


def _child(node: Node | None, step: str | int) -> Node | None:
    if isinstance(node, Pairs) and isinstance(step, str):
        entry = node.get(step)
        return entry.value if entry else None
    if isinstance(node, Items) and isinstance(step, int) and step < len(node.nodes):
        return node.nodes[step]
    return None


def _span(file: str, start: StringMark, end: StringMark) -> Span:
    same_line = end.line == start.line and end.column > start.column
    return Span(file, start.line + 1, start.column + 1, end.column + 1 if same_line else None)


def _start(span: Span) -> Span:
    return replace(span, end_column=None)


def _syntax_fault(error: Exception, last: Span, source: Source) -> Diagnostic:
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return source.fault("syntax", f"not valid YAML after here: {error}", last)
    context, begun = getattr(error, "context", None), getattr(error, "context_mark", None)
    hint = f"{context}, begun on line {begun.line + 1}" if context and begun else None
    # The parser names some tokens as one-tuples, and breaks long sentences.
    problem = " ".join(re.sub(r"\('(.*?)',\)", r"'\1'", str(getattr(error, "problem", error))).split())
    return source.fault("syntax", f"not valid YAML: {problem}", _span(source.file, mark, mark), hint)
