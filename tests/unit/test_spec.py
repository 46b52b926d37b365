"""The spec model: its keys, defaults, ranges and what it refuses to mean."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from v4gen.diagnostic import DiagnosticError
from v4gen.read.reader import parse_spec, read_spec, read_specs
from v4gen.read.spec import FrozenMapping, Spec

SPECS = Path(__file__).parents[2] / "specs"
REQUIRED: dict[str, Any] = {
    "schema": "v4gen/1", "name": "example", "heads": 64, "dim": 128, "topk": 512, "compress_ratio": 4
}  # fmt: skip
TEXT = "".join(f"{key}: {value}\n" for key, value in REQUIRED.items())


def make(**values: object) -> Spec:
    return Spec.model_validate({**REQUIRED, **values})


def test_defaults() -> None:
    spec = parse_spec(TEXT, "x.yaml")
    assert spec == make()
    assert (spec.interface, spec.layout, spec.mask, spec.width, spec.order) == (
        "operator", "BSHD", "causal", "topk", "score"
    )  # fmt: skip
    assert (spec.dtype, spec.index_base, spec.weight_scale) == ("bfloat16", "global", 1.0)
    assert (spec.activation, spec.head_weights, spec.pooling) == ("relu", True, "none")
    assert (spec.description, spec.origin) == ("", "")
    assert spec.backward.deterministic is False
    assert spec.forward.scratch_mib == 256
    assert spec.targets == ("cpu", "sm_90a")
    assert spec.schedule == {}


def test_the_shipped_specs() -> None:
    flash = read_spec(SPECS / "deepseek_v4_flash.yaml")
    assert (flash.heads, flash.dim, flash.topk, flash.compress_ratio) == (64, 128, 512, 4)
    assert (flash.interface, flash.layout, flash.width) == ("seed", "SBHD", "min")
    assert flash.targets == ("cpu", "sm_80", "sm_90a", "sm_100a")
    tiny = read_spec(SPECS / "tiny.yaml")
    assert (tiny.heads, tiny.dim, tiny.topk, tiny.compress_ratio, tiny.interface) == (4, 32, 8, 4, "seed")


def test_every_key_can_be_given() -> None:
    spec = parse_spec(
        TEXT + 'interface: operator\ndescription: \'a: """ {{ }} \\\'\norigin: >-\n  two\n  lines\nlayout: "SBHD"\n'
        "mask: causal\nwidth: min\norder: index\ndtype: float16\nweight_scale: 0.125\nactivation: relu\n"
        "head_weights: true\npooling: none\nbackward: {deterministic: true}\nforward: {scratch_mib: 65536}\n"
        "targets: [gfx942, sm_90a]\nschedule:\n  sm_90a: {block_n: 64, stages: 0}\n",
        "x.yaml",
    )
    assert spec.description == 'a: """ {{ }} \\'
    assert spec.origin == "two lines"
    assert spec.schedule["sm_90a"]["block_n"] == 64
    assert (spec.weight_scale, spec.forward.scratch_mib, spec.targets) == (0.125, 65536, ("gfx942", "sm_90a"))


def test_yaml_details_do_not_change_the_spec() -> None:
    spec = parse_spec(TEXT, "x.yaml")
    json = ", ".join(f'"{key}": {value if type(value) is int else repr(value)}' for key, value in REQUIRED.items())
    for text in (TEXT.replace("\n", "\r\n"), f"---\n{TEXT}...\n", f"# why\n\n{TEXT.rstrip()}", f"{{{json}}}"):
        assert parse_spec(text, "x.yaml") == spec


def test_a_spec_is_frozen_hashable_and_survives_copies() -> None:
    spec = make(schedule={"cpu": {"threads": 4}}, targets=["cpu"])
    with pytest.raises(ValidationError):
        spec.heads = 3
    with pytest.raises(TypeError):
        spec.schedule["cpu"]["threads"] = 5  # type: ignore[index]
    for other in (
        pickle.loads(pickle.dumps(spec)),
        copy.deepcopy(spec),
        Spec.model_validate(spec.model_dump()),
        make(schedule=spec.schedule, targets=spec.targets),
        Spec.model_validate_json(spec.model_dump_json()),
    ):
        assert other == spec
        assert hash(other) == hash(spec)
    assert spec != make()
    assert repr(FrozenMapping({"a": 1})) == "FrozenMapping({'a': 1})"


@pytest.mark.parametrize(
    ("key", "good", "bad"),
    [
        ("heads", (1, 12, 128), (0, 129, -1, 2.0, True, "64", None)),
        ("dim", (16, 48, 256), (0, 8, 24, 272, 16.0)),
        ("topk", (1, 7, 1000, 4096), (0, 4097)),
        ("compress_ratio", (1, 128, 2**31 - 1), (0, 2**31)),
        ("weight_scale", (1, 0.5, 1e-30), (0, -1.0, float("nan"), float("inf"), 1e39, 1e-40, True, "1")),
        ("forward", ({"scratch_mib": 1},), ({"scratch_mib": 0}, {"scratch_mib": 65537}, {"scratch": 1}, None)),
        ("targets", (("cpu",), ["sm_80", "cpu"]), ((), ("cpu", "cpu"), ("sm_90",), "cpu", {"cpu"})),
        ("schedule", ({}, {"cpu": {"a": 0}}), ({"tpu": {}}, {"cpu": {"A": 1}}, {"cpu": {"a": -1}}, {"cpu": 1}, [])),
        ("name", ("x",), ("a-b", "../x", "lambda", "print", "con", "json", 1)),
        ("description", ("a\nb", "é 🙂", "tab-less"), ("a\tb", "\0", "\x1b[0m", "\ud800", "\u2028", "\u202e", 1, None)),
        ("schema", ("v4gen/1",), ("v4gen/2", 1)),
        ("interface", ("operator",), ("Seed", None)),
        ("dtype", ("bfloat16", "float16"), ("bf16", "float32")),
        ("head_weights", (True,), (False, 1, "true")),
        ("activation", ("relu",), ("silu", "none", None)),
        ("pooling", ("none",), ("gated", None)),
        ("index_base", ("global",), ("local", "both")),
    ],
)
def test_values(key: str, good: tuple[object, ...], bad: tuple[object, ...]) -> None:
    for value in good:
        make(**{key: value})
    for value in bad:
        with pytest.raises(ValidationError):
            make(**{key: value})


LEGAL = {("SBHD", "causal"), ("SBHD", "ranges"), ("BSHD", "causal"), ("BSHD", "ranges"), ("THD", "ranges"),
         ("THD", "varlen")}  # fmt: skip


@pytest.mark.parametrize("layout", ["SBHD", "BSHD", "THD"])
@pytest.mark.parametrize("mask", ["causal", "ranges", "varlen"])
def test_a_layout_has_its_masks_and_no_other(layout: str, mask: str) -> None:
    if (layout, mask) in LEGAL:
        assert make(layout=layout, mask=mask).index_base == "global"
        return
    with pytest.raises(ValidationError, match=f"layout `{layout}` has no mask `{mask}`"):
        make(layout=layout, mask=mask)


def test_only_documents_have_an_index_base() -> None:
    assert make(layout="THD", mask="varlen", index_base="local").index_base == "local"
    with pytest.raises(ValidationError, match="mask `ranges` has no documents"):
        make(layout="THD", mask="ranges", index_base="local")


def test_the_model_refuses_conflicts_with_their_key() -> None:
    with pytest.raises(ValidationError) as caught:
        make(interface="seed", layout="SBHD", mask="causal", width="topk")
    assert [(error["loc"], error["type"]) for error in caught.value.errors()] == [(("width",), "conflict")]
    with pytest.raises(ValidationError, match="layout `THD` has no mask `causal`"):
        make(layout="THD")


_INTEGERS = st.from_regex(r"[-+]?[0-9][0-9_.,:xobeE+-]{0,5}", fullmatch=True)


@given(_INTEGERS)
def test_an_integer_is_plain_digits_and_nothing_else(text: str) -> None:
    canonical = text.isdigit() and str(int(text)) == text and 1 <= int(text) <= 4096
    try:
        spec = parse_spec(TEXT.replace("topk: 512", f"topk: {text}"), "x.yaml")
    except DiagnosticError as error:
        assert not canonical
        (diagnostic,) = error.diagnostics
        assert diagnostic.span is not None
        assert diagnostic.span.line == 5
    else:
        assert canonical
        assert spec.topk == int(text)


def test_several_files_keep_their_order_and_are_read_once(tmp_path: Path) -> None:
    first, second = tmp_path / "b.yaml", tmp_path / "a.yaml"
    first.write_text(TEXT, encoding="utf-8")
    second.write_text(TEXT.replace("example", "other"), encoding="utf-8")
    assert [spec.name for spec in read_specs([first, second, first])] == ["example", "other"]
    assert read_specs([]) == ()


@pytest.mark.parametrize("other", ["example", "Example", "EXAMPLE", "\uff45xample"])
def test_two_specs_for_one_folder(tmp_path: Path, other: str) -> None:
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text(TEXT, encoding="utf-8")
    second.write_text(TEXT.replace("example", other), encoding="utf-8")
    with pytest.raises(DiagnosticError) as caught:
        read_specs([first, second])
    (collision,) = [found for found in caught.value.diagnostics if found.code == "name-collision"]
    assert collision.span is not None
    assert (collision.span.file, collision.span.line) == (second.as_posix(), 2)
    assert f"{first.as_posix()}:2:7" in collision.message


def test_hyphen_and_underscore_lead_to_one_folder(tmp_path: Path) -> None:
    paths = []
    for name in ("a-b", "a_b"):
        paths.append(tmp_path / f"{name}.yaml")
        paths[-1].write_text(TEXT.replace("example", name), encoding="utf-8")
    with pytest.raises(DiagnosticError) as caught:
        read_specs(paths)
    assert [found.code for found in caught.value.diagnostics] == ["bad-name", "name-collision"]
