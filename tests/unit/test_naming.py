"""Which names a spec may have."""

from __future__ import annotations

import keyword

import pytest
from hypothesis import given
from hypothesis import strategies as st

from v4gen.read.naming import folder_key, name_fault, name_hint


@pytest.mark.parametrize("name", ["tiny", "deepseek_v4_flash", "glm_5_ranges", "a", "x" * 64, "com10", "lambda_"])
def test_good_names(name: str) -> None:
    assert name_fault(name) is None


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "is empty"),
        ("../x", "is a path"),
        ("/abs", "is a path"),
        ("a/b", "is a path"),
        ("a\\b", "is a path"),
        ("C:x", "is a path"),
        (".", "is a path"),
        ("..", "is a path"),
        ("a-b", "lowercase letters"),
        ("a.b", "lowercase letters"),
        ("a b", "lowercase letters"),
        ("A", "lowercase letters"),
        ("4x", "lowercase letters"),
        ("tiny\n", "lowercase letters"),
        ("__init__", "Python's own"),
        ("_", "Python's own"),
        ("ﬁne", "ASCII"),
        ("tınу", "ASCII"),
        ("x" * 65, "65 characters"),
        ("lambda", "keyword"),
        ("match", "keyword"),
        ("type", "keyword"),
        ("print", "builtin"),
        ("con", "device"),
        ("nul", "device"),
        ("com1", "device"),
        ("lpt9", "device"),
        ("json", "standard library"),
        ("distutils", "standard library"),
        ("compression", "standard library"),
        ("torch", "package that generated code"),
        ("v4gen", "package that generated code"),
    ],
)
def test_bad_names_say_why(name: str, reason: str) -> None:
    fault = name_fault(name)
    assert fault is not None
    assert reason in fault


@pytest.mark.parametrize("word", [word for word in (*keyword.kwlist, *keyword.softkwlist) if word.islower()])
def test_no_keyword_is_a_name(word: str) -> None:
    assert name_fault(word)


@pytest.mark.parametrize(
    ("name", "hint"), [("Deep-Seek", "write `deep_seek`"), ("ﬁne", "write `fine`"), ("../x", None), ("日本", None)]
)
def test_a_near_name_is_suggested(name: str, hint: str | None) -> None:
    assert name_hint(name) == hint


@given(st.text(max_size=12))
def test_folding_is_stable_and_leaves_good_names_alone(name: str) -> None:
    assert folder_key(folder_key(name)) == folder_key(name)
    if name_fault(name) is None:
        assert folder_key(name) == name
