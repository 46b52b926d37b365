"""YAML text → a tree that knows where everything stood, and what a spec may not contain."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from v4gen.read.document import MAX_DEPTH, Document, Items, Pairs, Scalar, parse_document
from v4gen.read.source import make_source


def parse(text: str) -> Document:
    return parse_document(make_source(text, "x.yaml"))


def places(document: Document) -> list[tuple[str, int, int]]:
    return [(fault.code, fault.span.line, fault.span.column) for fault in document.faults if fault.span]


def test_every_key_and_value_knows_where_it_stood() -> None:
    document = parse("# first\nheads: 010  # why\nforward:\n  scratch_mib: '64'\ntargets: [cpu, sm_90a]\n")
    heads = document.node(("heads",))
    assert isinstance(heads, Scalar)
    assert (heads.text, heads.plain) == ("010", True)
    assert (heads.span.line, heads.span.column, heads.span.end_column) == (2, 8, 11)
    scratch = document.node(("forward", "scratch_mib"))
    assert isinstance(scratch, Scalar)
    assert (scratch.text, scratch.plain, scratch.span.line, scratch.span.column) == ("64", False, 4, 16)
    assert document.span(("targets", 1)).column == 16
    key = document.key(("forward", "scratch_mib"))
    assert key is not None
    assert (key.span.line, key.span.column) == (4, 3)
    assert document.faults == ()


def test_a_path_that_leads_nowhere_ends_at_the_deepest_node_on_its_way() -> None:
    document = parse("forward:\n  scratch_mib: 1\n")
    assert document.span(("forward", "nothing", "more")).line == 2
    assert document.key(("forward", "nothing")) is None
    assert isinstance(document.node(()), Pairs)


def test_an_absent_value_stands_behind_its_colon() -> None:
    span = parse("heads:\n\n# comment\ndim: 1\n").span(("heads",))
    assert (span.line, span.column) == (1, 7)


def test_scalars_keep_their_source_text_whatever_yaml_makes_of_them() -> None:
    for text in ("on", "~", "1:20", ".inf", "1_0", "0x10", "2001-01-01", "Null"):
        node = parse(f"a: {text}\n").node(("a",))
        assert isinstance(node, Scalar)
        assert (node.text, node.plain) == (text, True)


def test_several_faults_are_all_found() -> None:
    document = parse("a: &x 1\nb: *x\n<<: {c: 1}\nd: !!int 3\na: 2\n? [e]\n: 1\n")
    assert places(document) == [
        ("anchor", 1, 4),
        ("alias", 2, 4),
        ("tag", 4, 4),
        ("merge-key", 3, 1),
        ("duplicate-key", 5, 1),
        ("complex-key", 6, 3),
    ]


def test_a_duplicate_keeps_the_first_value() -> None:
    node = parse("a: 1\na: 2\n").node(("a",))
    assert isinstance(node, Scalar)
    assert node.text == "1"


def test_the_allowed_depth_is_read_and_one_more_is_refused() -> None:
    assert isinstance(parse("[" * MAX_DEPTH + "]" * MAX_DEPTH).root, Items)
    document = parse("[" * (MAX_DEPTH + 1))
    assert places(document) == [("too-deep", 1, MAX_DEPTH + 1)]
    assert document.root is None


def test_a_refused_tab_does_not_hide_what_else_is_wrong() -> None:
    assert places(parse("a:\t&x 1\n")) == [("tab", 1, 3), ("anchor", 1, 4)]


def test_a_syntax_error_after_a_refused_tab_is_its_echo() -> None:
    assert places(parse("a: 1\n\tb: 2\n")) == [("tab", 2, 1)]


def test_an_impossible_escape_is_a_syntax_error() -> None:
    assert [fault.code for fault in parse('a: "\\UFFFFFFFF"\n').faults] == ["syntax"]


# fmt: off
_PIECES = st.sampled_from([
    "a", "b: ", "1", "\n", "  ", "- ", "? ", ": ", "{", "}", "[", "]", ",", "'", '"', "\\", "\\x", "|", ">", "&a", "*a",
    "!", "!!int", "!<", "%", "%YAML 1.2\n", "---", "...", "#", "@", "<<", "\t", "\r\n", "\r", "\0", "é", "\u2028",
])
# fmt: on


@given(st.lists(_PIECES, max_size=20).map("".join) | st.text(max_size=30))
def test_no_text_crashes_the_parser_and_every_fault_points_into_it(text: str) -> None:
    document = parse(text)
    for fault in document.faults:
        assert fault.span is not None
        assert 1 <= fault.span.line <= len(document.source.lines)
