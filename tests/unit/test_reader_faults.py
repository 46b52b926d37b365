"""Every slip that a spec's author can make: one diagnostic each, at its place, saying what was expected."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from v4gen.diagnostic import Diagnostic, DiagnosticError
from v4gen.read.reader import parse_spec, read_spec
from v4gen.read.source import MAX_BYTES

TEXT = """\
schema: v4gen/1
name: example
heads: 64
dim: 128
topk: 512
compress_ratio: 4
"""
LAST = TEXT.count("\n") + 1  # the number of the line that an addition starts on


def diagnostics(text: str) -> tuple[Diagnostic, ...]:
    with pytest.raises(DiagnosticError) as caught:
        parse_spec(text, "x.yaml")
    return caught.value.diagnostics


def places(text: str) -> list[tuple[str, int, int]]:
    return [(found.code, found.span.line, found.span.column) for found in diagnostics(text) if found.span]


@dataclass(frozen=True)
class Row:
    """A value of `heads`, or a whole line to add, and what comes of it."""

    text: str
    code: str
    column: int
    says: str
    hint: str | None = None


INTEGER = "`heads` must be an integer from 1 to 128, found "
HEADS = [
    Row("010", "not-an-integer", 8, INTEGER + "`010`", "write `10`"),
    Row("00", "not-an-integer", 8, INTEGER + "`00`", "write `0`"),
    Row("1e2", "not-an-integer", 8, INTEGER + "`1e2`", "write `100`"),
    Row("1_0", "not-an-integer", 8, INTEGER + "`1_0`", "write `10`"),
    Row("0x10", "not-an-integer", 8, INTEGER + "`0x10`", "write `16`"),
    Row("0o10", "not-an-integer", 8, INTEGER + "`0o10`", "write `8`"),
    Row("64.0", "not-an-integer", 8, INTEGER + "`64.0`", "write `64`"),
    Row("6.4", "not-an-integer", 8, INTEGER + "`6.4`"),
    Row("'64'", "not-an-integer", 8, INTEGER + "the string `64`", "write `64`"),
    Row('"64"', "not-an-integer", 8, INTEGER + "the string `64`", "write `64`"),
    Row("|\n  64", "not-an-integer", 8, INTEGER + "the string `64`", "write `64`"),
    Row("1:20", "not-an-integer", 8, INTEGER + "`1:20`"),
    Row("~", "not-an-integer", 8, INTEGER + "`~`"),
    Row("null", "not-an-integer", 8, INTEGER + "`null`"),
    Row("", "not-an-integer", 7, INTEGER + "nothing"),
    Row(".inf", "not-an-integer", 8, INTEGER + "`.inf`"),
    Row(".nan", "not-an-integer", 8, INTEGER + "`.nan`"),
    Row("true", "not-an-integer", 8, INTEGER + "`true`"),
    Row("on", "not-an-integer", 8, INTEGER + "`on`"),
    Row("+4", "not-an-integer", 8, INTEGER + "`+4`", "write `4`"),
    Row("-4", "not-an-integer", 8, INTEGER + "`-4`"),
    Row("-0", "not-an-integer", 8, INTEGER + "`-0`"),
    Row("6 4", "not-an-integer", 8, INTEGER + "`6 4`"),
    Row("٦٤", "not-an-integer", 8, INTEGER + "`٦٤`"),
    Row("[64]", "not-an-integer", 8, INTEGER + "a list"),
    Row("[]", "not-an-integer", 8, INTEGER + "an empty list"),
    Row("{a: 1}", "not-an-integer", 8, INTEGER + "a mapping"),
    Row("9" * 5000, "not-an-integer", 8, "found `999"),
    Row("0", "out-of-range", 8, INTEGER + "`0`"),
    Row("129", "out-of-range", 8, INTEGER + "`129`"),
    Row("9" * 30, "out-of-range", 8, INTEGER + "`999"),
    Row("&a 64", "anchor", 8, "no anchors, found `&a`"),
    Row("*a", "alias", 8, "no aliases, found `*a`"),
    Row("!!int 64", "tag", 8, "no tags, found `!!int`"),
    Row("!!python/object/apply:os.system [x]", "tag", 8, "no tags, found `!!python/object/apply:os.system`"),
    Row("! 64", "tag", 8, "no tags, found `!`"),
    Row("!<a> &b 64", "tag", 13, "no tags, found `a`"),
    Row("6\t4", "tab", 9, "no tab characters"),
]


@pytest.mark.parametrize("row", HEADS, ids=lambda row: row.text[:20])
def test_a_value_where_an_integer_is_due(row: Row) -> None:
    found = diagnostics(TEXT.replace("heads: 64", f"heads: {row.text}".rstrip(" ")))
    # A tab inside a value is refused first, and the value that remains is no integer either.
    diagnostic = next(one for one in found if one.code == row.code)
    assert len(found) == 1 or row.code == "tab"
    assert diagnostic.span is not None
    assert (diagnostic.code, diagnostic.span.line, diagnostic.span.column) == (row.code, 3, row.column)
    assert row.says in diagnostic.message
    assert (row.hint or "") in (diagnostic.hint or "")


ADDED = [
    Row("head: 3", "unknown-key", 1, "unknown key `head`", "did you mean `heads`?"),
    Row("Compress-Ratio: 3", "unknown-key", 1, "unknown key `Compress-Ratio`", "did you mean `compress_ratio`?"),
    Row("zzz: 3", "unknown-key", 1, "unknown key `zzz`", "the keys here are `schema`, `name`"),
    Row("~: 3", "unknown-key", 1, "unknown key `~`"),
    Row("heads: 64", "duplicate-key", 1, "`heads` is given twice", "first given on line 3"),
    Row('"heads": 64', "duplicate-key", 1, "`heads` is given twice"),
    Row("backward: {deterministic: true, deterministic: true}", "duplicate-key", 33, "`deterministic` is given twice"),
    Row("<<: {topk: 3}", "merge-key", 1, "merge keys"),
    Row("? [a]\n: 1", "complex-key", 3, "plain word"),
    Row("---", "several-documents", 1, "one document"),
    Row("---\nb: 1", "several-documents", 1, "one document"),
    Row("layout: THD", "illegal-pair", 9, "layout `THD` has no mask `causal`", "`mask: ranges` or `mask: varlen`"),
    Row("mask: varlen", "illegal-pair", 7, "layout `BSHD` has no mask `varlen`", "mask `varlen` needs `layout: THD`"),
    Row("layout: sbhd", "unknown-value", 9, "one of `SBHD`, `BSHD`, `THD`, found `sbhd`", "did you mean `SBHD`?"),
    Row("order: ~", "unknown-value", 8, "one of `score`, `index`, found `~`"),
    Row("order:", "unknown-value", 7, "found nothing"),
    Row("dtype: bf16", "unknown-value", 8, "one of `bfloat16`, `float16`"),
    Row("interface: sed", "unknown-value", 12, "one of `seed`, `operator`", "did you mean `seed`?"),
    Row("index_base: global", "index-base", 13, "mask `causal` has no documents", "remove `index_base`"),
    Row("activation: silu", "other-operator", 13, "MiniMax MSA", "remove the key"),
    Row("activation: none", "other-operator", 13, "weighted relu scores"),
    Row("head_weights: false", "other-operator", 15, "Qwen QSA"),
    Row("head_weights: yes", "unknown-value", 15, "must be `true`, found `yes`", "write `true`"),
    Row("pooling: gated", "other-operator", 10, "GLM-5.3"),
    Row("pooling: null", "unknown-value", 10, "must be `none`, found `null`"),
    Row("backward: {deterministic: on}", "not-a-boolean", 27, "`true` or `false`, found `on`", "write `true`"),
    Row("backward: {deterministic: off}", "not-a-boolean", 27, "`true` or `false`, found `off`", "write `false`"),
    Row("backward: {deterministic: True}", "not-a-boolean", 27, "found `True`", "write `true`"),
    Row("backward: {deterministic: 'true'}", "not-a-boolean", 27, "found the string `true`", "write `true`"),
    Row("backward: {deterministic: 1}", "not-a-boolean", 27, "found `1`", "write `true`"),
    Row(
        "backward: {determinstic: true}", "unknown-key", 12, "unknown key `determinstic` in `backward`", "did you mean"
    ),
    Row("backward:", "not-a-mapping", 10, "must be a mapping with the keys `deterministic`, found nothing"),
    Row("backward: true", "not-a-mapping", 11, "found `true`"),
    Row("forward: {scratch_mib: 0}", "out-of-range", 24, "`forward.scratch_mib` must be an integer from 1 to 65536"),
    Row("forward: {scratch_mib: 65537}", "out-of-range", 24, "from 1 to 65536"),
    Row("forward:\n  scratch_mib: 1e2", "not-an-integer", 16, "found `1e2`"),
    Row("weight_scale: 0", "out-of-range", 15, "found `0`"),
    Row("weight_scale: -1", "out-of-range", 15, "found `-1`"),
    Row("weight_scale: 1e400", "out-of-range", 15, "from 1.18e-38 to 3.4e+38"),
    Row("weight_scale: .inf", "not-a-number", 15, "found `.inf`"),
    Row("weight_scale: .5", "not-a-number", 15, "found `.5`", "write `0.5`"),
    Row("weight_scale: '0.5'", "not-a-number", 15, "found the string `0.5`", "write `0.5`"),
    Row("weight_scale: 010", "not-a-number", 15, "found `010`"),
    Row("targets: []", "empty-list", 10, "a list of at least one of `cpu`"),
    Row("targets: cpu", "not-a-list", 10, "found `cpu`"),
    Row("targets: [cpu, sm_90]", "unknown-value", 16, "`targets[1]` must be one of", "did you mean `sm_90a`?"),
    Row("targets: [cpu, sm_80, cpu]", "duplicate-target", 23, "target `cpu` is given twice"),
    Row("schedule: {sm_80: {a: 1}}", "schedule-target", 11, "`schedule.sm_80` pins the schedule of a target"),
    Row("schedule: {tpu: {a: 1}}", "unknown-key", 12, "unknown key `tpu` in `schedule`"),
    Row("schedule: {cpu: {A: 1}}", "bad-name", 18, "the schedule name `A`"),
    Row("schedule: {cpu: {a: 01}}", "not-an-integer", 21, "`schedule.cpu.a` must be an integer from 0 to 2147483647"),
    Row("schedule: {cpu: 1}", "not-a-mapping", 17, "must be a mapping, found `1`"),
    Row("description: 1.5", "not-a-string", 14, "must be a string, found `1.5`", "quote it"),
    Row("description: true", "not-a-string", 14, "must be a string, found `true`", "quote it"),
    Row("description:", "not-a-string", 13, "found nothing"),
    Row("description: 010", "not-a-string", 14, "found `010`", "quote it"),
    Row('description: "a\\0b"', "control-character", 14, "U+0000"),
    Row('description: "a\\tb"', "control-character", 14, "U+0009"),
    Row('origin: "\\e[31m"', "control-character", 9, "U+001B"),
    Row('origin: "\\ud800"', "control-character", 9, "U+D800"),
    Row('origin: "\\u2029"', "control-character", 9, "U+2029"),
    Row('origin: "\\u202e"', "control-character", 9, "U+202E"),
    Row("origin: a\0b", "control-character", 10, "U+0000"),
    Row("origin: a\x1bb", "control-character", 10, "U+001B"),
    Row("origin: a\rb", "control-character", 10, "U+000D"),
    Row("origin: a\u2028b", "control-character", 10, "U+2028"),
    Row("origin:\ta", "tab", 8, "no tab characters"),
    Row("\torigin: a", "tab", 1, "no tab characters", "spaces"),
    Row("origin: a  #\tb", "tab", 13, "no tab characters"),
    Row("origin: [a", "syntax", 1, "not valid YAML"),
    Row("origin: 'a", "syntax", 1, "not valid YAML"),
    Row("origin: a: b", "syntax", 10, "not valid YAML"),
    Row("origin: @a", "syntax", 9, "not valid YAML"),
    Row("- a", "syntax", 1, "not valid YAML"),
    Row('origin: "\\UFFFFFFFF"', "syntax", 1, "not valid YAML"),
    Row("origin: " + "[" * 5000, "too-deep", 16, "levels deep"),
]


@pytest.mark.parametrize("row", ADDED, ids=lambda row: row.text[:30])
def test_a_line_too_many(row: Row) -> None:
    (found,) = diagnostics(TEXT + row.text + "\n")
    assert found.span is not None
    assert (found.code, found.span.column) == (row.code, row.column)
    assert found.span.line >= LAST
    assert found.source_line is None or found.source_line in (*row.text.split("\n"), "")
    assert row.says in found.message
    assert (row.hint or "") in (found.hint or "")


NAMES = ["a-b", "Example", "../x", "/abs", "a\\b", "C:x", ".", "lambda", "match", "print", "con", "com1", "__init__"]
NAMES += ["json", "torch", "4x", "''", "ﬁne", "日本", "x" * 65, "{a}", "a b"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_is_none(name: str) -> None:
    (found,) = diagnostics(TEXT.replace("example", f'"{name}"'.replace("\\", "\\\\") if name[0] == "{" else name))
    assert found.span is not None
    assert (found.code, found.span.line, found.span.column) == ("bad-name", 2, 7)


@pytest.mark.parametrize("name", ["1", "~", "true", ""])
def test_a_name_that_is_no_string(name: str) -> None:
    assert [place[:2] for place in places(TEXT.replace(" example", f" {name}".rstrip()))] == [("not-a-string", 2)]


WHOLE = [
    ("", "empty", 1, 1),
    ("\n\n", "empty", 1, 1),
    ("# only a comment\n", "empty", 1, 1),
    ("---\n", "not-a-mapping", 2, 1),
    ("~\n", "not-a-mapping", 1, 1),
    ("heads\n", "not-a-mapping", 1, 1),
    ("- a\n- b\n", "not-a-mapping", 1, 1),
    ("[" * 1000, "too-deep", 1, 9),
    ("\ufeff" + TEXT, "byte-order-mark", 1, 1),
    ("%YAML 1.1\n---\n" + TEXT, "directive", 1, 1),
    ("%TAG !e! tag:x,1:\n---\n" + TEXT, "directive", 1, 1),
    (TEXT + "#" * MAX_BYTES, "too-large", 1, 1),
    ("a: " * 400_000, "too-large", 1, 1),
    (" " + TEXT, "syntax", 2, 1),
    (TEXT.replace("v4gen/1", "v4gen/2"), "unknown-value", 1, 9),
    (TEXT.replace("v4gen/1", "1"), "unknown-value", 1, 9),
    (TEXT.replace("heads", "haeds"), "unknown-key", 3, 1),
    (TEXT + "layout: SBHD\nmask: varlen\n", "illegal-pair", LAST + 1, 7),
    (TEXT + "layout: THD\nmask: ranges\nindex_base: local\n", "index-base", LAST + 2, 13),
    (TEXT + "interface: seed\nlayout: SBHD\nmask: ranges\nwidth: min\n", "seed-interface", LAST + 2, 7),
    (TEXT + "interface: seed\nlayout: THD\nwidth: min\n", "seed-interface", LAST + 1, 9),
    (TEXT + "interface: seed\nlayout: SBHD\n", "seed-interface", LAST, 12),
    (TEXT + "interface: seed\nlayout: SBHD\nwidth: topk\n", "seed-interface", LAST + 2, 8),
    (TEXT + "interface: seed\nlayout: BSHD\nwidth: min\n", "seed-interface", LAST + 1, 9),
]


@pytest.mark.parametrize(("text", "code", "line", "column"), WHOLE, ids=lambda value: str(value)[-25:])
def test_a_whole_text(text: str, code: str, line: int, column: int) -> None:
    assert places(text) == [(code, line, column)]


def test_missing_keys_are_named_together() -> None:
    (found,) = diagnostics("schema: v4gen/1\nheads: 64\n")
    assert found.code == "missing-key"
    assert found.message == "missing required keys `name`, `dim`, `topk`, `compress_ratio`"


def test_everything_is_reported_at_once_in_the_order_of_the_text() -> None:
    text = (
        TEXT.replace("64", "010").replace("example", "a-b").replace("topk: 512\n", "") + "interface: seed\nwdth: min\n"
    )
    assert places(text) == [
        ("missing-key", 1, 1),
        ("bad-name", 2, 7),
        ("not-an-integer", 3, 8),
        ("seed-interface", 6, 12),
        ("seed-interface", 6, 12),
        ("unknown-key", 7, 1),
    ]


def test_a_refused_value_is_no_ground_for_further_judgement() -> None:
    assert places(TEXT + "layout: XYZ\nmask: varlen\n") == [("unknown-value", LAST, 9)]


def read_fault(path: Path) -> Diagnostic:
    with pytest.raises(DiagnosticError) as caught:
        read_spec(path)
    (found,) = caught.value.diagnostics
    return found


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(TEXT.replace("example", "exampl").encode() + b"origin: caf\xe9\n")
    found = read_fault(path)
    assert found.span is not None
    assert (found.code, found.span.line, found.span.column) == ("not-utf8", LAST, 12)
    path.write_bytes(TEXT.encode("utf-16"))
    found = read_fault(path)
    assert (found.code, found.hint) == ("not-utf8", "this looks like UTF-16: save it as UTF-8")
    path.write_bytes(b"a" * 1_000_000)
    assert read_fault(path).code == "too-large"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").touch()
    missing = read_fault(tmp_path / "tinny.yaml")
    assert (missing.code, missing.hint) == ("unreadable", f"did you mean `{(tmp_path / 'tiny.yaml').as_posix()}`?")
    assert "is a directory" in read_fault(tmp_path).message
    assert "cannot read" in read_fault(tmp_path / "a\0b").message
    assert "there is no file" in read_fault(tmp_path / "none" / "x.yaml").message
