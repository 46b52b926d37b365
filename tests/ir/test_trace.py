"""Changed modules told apart by their kernels' IR: what is cosmetic, what is semantic, and where it begins."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from v4gen.emit.compare import Drift, Effect, FileDrift, compare
from v4gen.emit.package import Package, emit_packages
from v4gen.emit.write import write_package
from v4gen.plan.plan import make_plan
from v4gen.read.spec import Spec
from v4gen.run.trace import classify

pytestmark = pytest.mark.xdist_group("ir")

SCORES, BACKWARD = "_scores.py", "_backward.py"


def emitted(**more: object) -> Package:
    values = {"schema": "v4gen/1", "name": "p", "heads": 4, "dim": 32, "topk": 8, "compress_ratio": 4}
    return emit_packages([make_plan(Spec.model_validate({**values, "targets": ["cpu"], **more}))])[0]


@pytest.fixture(scope="module")
def package() -> Package:
    return emitted()


def classified(package: Package, output: Path) -> Sequence[FileDrift]:
    return classify(compare(package, output / package.name), [package], output)


def edited(package: Package, output: Path, name: str, change: Callable[[str], str]) -> FileDrift:
    """What `classify` says of the module `name` after `change`."""
    write_package(package, output / package.name)
    path = output / package.name / name
    text = path.read_text(encoding="utf-8")
    assert change(text) != text
    path.write_text(change(text), encoding="utf-8")
    (drift,) = classified(package, output)
    return drift


def renamed(old: str, new: str) -> Callable[[str], str]:
    return lambda text: re.sub(rf"\b{old}\b", new, text)


@pytest.mark.parametrize("variable", ["first_tile", "products"])
def test_renaming_a_variable_is_cosmetic(package: Package, tmp_path: Path, variable: str) -> None:
    drift = edited(package, tmp_path, SCORES, renamed(variable, f"{variable}_renamed"))
    assert (drift.kind, drift.effect) == (Drift.COSMETIC, Effect.COSMETIC)


def test_comments_and_docstrings_are_cosmetic(package: Package, tmp_path: Path) -> None:
    drift = edited(
        package, tmp_path, "reference.py", lambda text: text.replace("# ", "# Note: ").replace('"""', '""" ')
    )
    assert (drift.kind, drift.effect) == (Drift.COSMETIC, Effect.COSMETIC)


def test_a_changed_tile_is_semantic_and_its_node_is_named(package: Package, tmp_path: Path) -> None:
    write_package(package, tmp_path / "p")
    now = emitted(schedule={"cpu": {"scores_block_n": 32}})
    (drift,) = classified(now, tmp_path)
    assert (drift.path.name, drift.kind, drift.effect) == (SCORES, Drift.OUTDATED, Effect.SEMANTIC)
    assert re.search(r"kernel scores for cpu differs: `\S+`", drift.reason)
    assert "is 16, would be 32" in drift.reason


def test_a_part_that_only_some_gradients_need_is_looked_at(package: Package, tmp_path: Path) -> None:
    """In the kernel of all gradients this line makes no difference."""
    other = "if needs_w else T.Tensor((2,), FP32)"
    drift = edited(package, tmp_path, BACKWARD, lambda text: text.replace("if needs_w else unused()", other))
    assert drift.effect is Effect.SEMANTIC and "with gradients" in drift.reason


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("reference.py", renamed("visible_keys", "seen"), "outside the compared kernels"),
        (SCORES, lambda text: text + "\n\nEXTRA = 1\n", "added or removed"),
        (SCORES, lambda text: text + "def broken(:\n", "does not parse"),
        (
            SCORES,
            lambda text: text.replace("import tilelang\n", "import tilelang_that_is_not_there\n"),
            "cannot be traced",
        ),
    ],
)
def test_what_the_ir_cannot_vouch_for_is_semantic(
    package: Package, tmp_path: Path, name: str, change: Callable[[str], str], reason: str
) -> None:
    drift = edited(package, tmp_path, name, change)
    assert drift.effect is Effect.SEMANTIC and not drift.kind.is_notice
    assert reason in drift.reason


def test_without_tilelang_a_change_counts_as_semantic(
    package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("v4gen.run.trace.find_spec", lambda _: None)
    drift = edited(package, tmp_path, SCORES, renamed("first_tile", "tile_from"))
    assert drift.effect is Effect.SEMANTIC and "tilelang is not there" in drift.reason


def test_what_is_no_changed_module_is_left_as_it_is(package: Package, tmp_path: Path) -> None:
    found = (FileDrift(tmp_path / "p" / SCORES, Drift.MISSING), FileDrift(tmp_path / "p" / "py.typed", Drift.EDITED))
    assert classify(found, [package], tmp_path) == found
