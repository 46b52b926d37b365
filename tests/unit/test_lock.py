"""The lock says what was generated from what, in a text that merges, and refuses to be misread."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from v4gen.diagnostic import DiagnosticError
from v4gen.emit.api import public_api
from v4gen.emit.lock import LOCK_NAME, Benchmark, Evidence, Lock, PackageLock, lock_entry, lock_text, read_lock
from v4gen.emit.package import Package
from v4gen.emit.provenance import Provenance, provenance
from v4gen.plan.plan import make_plan
from v4gen.read.reader import parse_spec

SPEC = "schema: v4gen/1\nname: one\nheads: 4\ndim: 32\ntopk: 8\ncompress_ratio: 4\n"
SCHEDULE = MappingProxyType({"sm_90a": {"scores_block_n": 64}, "cpu": {"scores_threads": 1}})
MADE_FROM = Provenance("5a", "6b", "7c", "ruff 1.2.3", SCHEDULE)
ENTRY = PackageLock("0.1.0", MADE_FROM, "8d", {"b.py": "22", "__init__.py": "11", "py.typed": "33"})
EVIDENCE = Evidence(ENTRY.code, "cpu", {"torch": "2.9.0+cpu", "apache-tvm-ffi": "0.1.12"}, "9e")

BENCHMARKS = {"cuda": Benchmark(ENTRY.code, "../records/one.json", "ab")}


def written(folder: Path, lock: Lock) -> str:
    text = lock_text(lock)
    (folder / LOCK_NAME).write_text(text, encoding="utf-8")
    return text


def made_from(more: str = "", base: str = SPEC) -> Provenance:
    return provenance(make_plan(parse_spec(base + more, "one.yaml")))


def test_a_lock_is_read_back_as_it_was(tmp_path: Path) -> None:
    lock = Lock(
        {
            "one": ENTRY,
            "two": replace(ENTRY, evidence=EVIDENCE),
            "three": replace(ENTRY, api="0f", benchmarks=BENCHMARKS),
        }
    )
    written(tmp_path, lock)
    assert read_lock(tmp_path) == lock


def test_no_lock_is_none_and_its_line_ends_do_not_count(tmp_path: Path) -> None:
    assert read_lock(tmp_path) is None
    assert read_lock(tmp_path / "nowhere") is None
    text = written(tmp_path, Lock({"one": ENTRY}))
    (tmp_path / LOCK_NAME).write_bytes(text.replace("\n", "\r\n").encode())
    assert read_lock(tmp_path) == Lock({"one": ENTRY})


def test_entries_stand_one_a_line_in_one_order() -> None:
    lock = Lock({"two": ENTRY, "one": replace(ENTRY, evidence=EVIDENCE)})
    text = lock_text(lock)
    assert text == lock_text(Lock(dict(reversed([*lock.packages.items()]))))
    lines = text.splitlines()
    assert lines[0].startswith("#") and lines[1] == "version = 1"
    assert all(re.fullmatch(r"(\[[\w.\-]+\]|\S+ = \S.*|)", line) for line in lines[1:])
    tables = [line for line in lines if line.startswith("[")]
    assert tables == sorted(tables, key=lambda table: table.split(".")[1] != "one]" and ".two" in table)
    files = [line.partition(" ")[0] for line in lines if line.endswith(('"11"', '"22"', '"33"'))]
    assert files == ['"__init__.py"', '"b.py"', '"py.typed"'] * 2


def test_independent_changes_touch_other_lines() -> None:
    before = set(lock_text(Lock({"one": ENTRY, "two": ENTRY})).splitlines())
    files = {**ENTRY.files, "b.py": "44"}
    after = lock_text(Lock({"one": ENTRY, "two": replace(ENTRY, files=files)})).splitlines()
    assert set(after) - before == {'"b.py" = "44"'}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("version = 2\n", "its version is 2"),
        ("", "its version is None"),
        ("version = 1\n[package.one]\n", "an entry is not as v4gen writes it"),
        ("version = 1\npackage = 3\n", "an entry is not as v4gen writes it"),
        ("version = \n", "not valid TOML"),
        ("\0", "not valid TOML"),
    ],
)
def test_what_is_no_lock_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / LOCK_NAME).write_text(text, encoding="utf-8")
    with pytest.raises(DiagnosticError) as caught:
        read_lock(tmp_path)
    (fault,) = caught.value.diagnostics
    assert fault.code == "bad-lock" and reason in fault.message


def test_a_merge_conflict_is_pointed_at(tmp_path: Path) -> None:
    text = written(tmp_path, Lock({"one": ENTRY}))
    conflict = text.replace('api = "8d"\n', '<<<<<<< ours\napi = "8d"\n=======\napi = "9d"\n>>>>>>> theirs\n')
    (tmp_path / LOCK_NAME).write_text(conflict, encoding="utf-8")
    with pytest.raises(DiagnosticError) as caught:
        read_lock(tmp_path)
    (fault,) = caught.value.diagnostics
    assert fault.span and conflict.splitlines()[fault.span.line - 1] == "<<<<<<< ours"
    assert "merge" in fault.message and "generate" in (fault.hint or "")


@pytest.mark.parametrize("path", ["../a.py", "/a.py", "deep/a.py", "..", "a\\\\b.py", ""])
def test_a_lock_cannot_lead_out_of_its_folder(tmp_path: Path, path: str) -> None:
    text = lock_text(Lock({"one": ENTRY})).replace('"b.py"', f'"{path}"')
    (tmp_path / LOCK_NAME).write_text(text, encoding="utf-8")
    with pytest.raises(DiagnosticError, match="no file of a package"):
        read_lock(tmp_path)


def test_an_entry_names_every_file_and_the_version() -> None:
    package = Package("one", {"a.py": '# @generated\n"""A."""\n', "py.typed": ""}, MADE_FROM)
    entry = lock_entry(package)
    assert list(entry.files) == ["a.py", "py.typed"] and entry.provenance is MADE_FROM
    assert entry.files["py.typed"] == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_a_new_version_with_equal_output_leaves_the_entry_alone() -> None:
    newer = replace(ENTRY, generator="0.2.0")
    proved = replace(ENTRY, evidence=EVIDENCE)
    assert proved.renewed(newer) is proved
    other = replace(newer, files={**ENTRY.files, "b.py": "44"})
    assert proved.renewed(other) == replace(other, evidence=EVIDENCE)


@pytest.mark.parametrize(
    "same",
    [
        {"more": "# a comment\n"},
        {"more": "layout: BSHD\nforward: {scratch_mib: 256}\n"},  # defaults, written out
        {"base": "\n".join([*reversed(SPEC.splitlines()), ""])},
        {"base": SPEC.replace("\n", "\r\n")},
        {"base": SPEC.replace("name: one", "name: 'one'")},
    ],
    ids=["comment", "defaults", "order", "CRLF", "quotes"],
)
def test_only_the_spec_s_values_count(same: Mapping[str, str]) -> None:
    assert made_from(**same) == made_from()


@pytest.mark.parametrize(
    "more", ["topk: 9\n", "description: x\n", "targets: [cpu]\n", "schedule: {cpu: {scores_block_n: 32}}\n"]
)
def test_another_value_is_another_spec_and_plan(more: str) -> None:
    base = SPEC.replace("topk: 8\n", "") if "topk" in more else SPEC
    now = made_from(more, base)
    assert now.spec != made_from().spec and now.plan != made_from().plan
    assert made_from().changes(now) == ["the spec changed"]


def test_changes_name_every_cause() -> None:
    now = made_from()
    assert now.changes(now) == []
    assert replace(now, plan="0").changes(now) == ["v4gen plans it differently"]
    causes = replace(now, templates="0", formatter="ruff 0.0.1").changes(now)
    assert causes == ["the templates changed", f"the formatter is {now.formatter}, was ruff 0.0.1"]


def test_the_lock_pins_every_target_s_sizes() -> None:
    package = Package("one", {"py.typed": ""}, made_from())
    table = tomllib.loads(lock_text(Lock({"one": lock_entry(package)})))["package"]["one"]["schedule"]
    assert table.keys() == {"cpu", "sm_90a"}
    assert table["cpu"]["scores_padded_heads"] == 4 and table["sm_90a"]["backward_block_i"] > 0


MODULE = '''# @generated
"""A module."""
BF16 = "bfloat16"
LIMIT = 3


def entry(q: int, *, offset: int = 0) -> int:
    return q


def _private() -> None: ...


def get_scores_kernel(heads: int) -> None: ...


class Op(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q):
        ctx.mark_non_differentiable(q)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        return grad, None
'''


def test_the_api_is_what_callers_rely_on() -> None:
    assert public_api({"m.py": MODULE, "_hidden.py": MODULE, "py.typed": ""}) == {
        "m.BF16": "a constant",
        "m.entry": "(q: int, *, offset: int=0) -> int",
        "m.Op": "class(torch.autograd.Function)",
        "m.Op.forward": "(ctx, q); ctx.mark_non_differentiable(q)",
        "m.Op.backward": "(ctx, grad); once_differentiable; returns (grad, None)",
    }
