"""Of wrong packages that rules make at random, at least 95 % are caught.

Not every flip is wrong: what it changes may be guarded twice, or cost time alone. One that passes the case matrix is
tried on random cases as well, and has escaped if one of them shows it wrong.

V4GEN_FLIPS asks for another number than 20, V4GEN_FLIPS_SEED for others of the thousands that there are. Either is
printed, with what caught each flip.
"""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from filelock import FileLock

from tests.mutation.flips import draw, flips

if TYPE_CHECKING:
    from tests.mutation.conftest import Emitted, Judge

SEED = os.environ.get("V4GEN_FLIPS_SEED", "0")
COUNT = int(os.environ.get("V4GEN_FLIPS", "20"))
PARTS = 4
CAUGHT = 0.95
RANDOM_CASES = 60

Sources = Mapping[str, Mapping[str, str]]


@pytest.fixture(scope="session")
def sources(emitted: dict[str, Emitted]) -> Sources:
    """The files of each package."""
    return {
        name: {path.name: path.read_text(encoding="utf-8") for path in sorted(package.folder.glob("*.py"))}
        for name, package in emitted.items()
    }


def title(part: int) -> str:
    return f"seed {SEED}, {COUNT} flips, part {part + 1} of {PARTS}"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(PARTS), ids=title)
def test_nearly_every_flip_is_caught(
    part: int,
    sources: Sources,
    emitted: dict[str, Emitted],
    judge: Judge,
    tmp_path: Path,
    of_all_parts: Path,
    record_property: Callable[[str, object], None],
) -> None:
    wrong, escaped = 0, []
    for number, (name, flip) in enumerate(draw(sources, SEED, COUNT)[part::PARTS]):
        changed = emitted[name].changed(tmp_path / str(number), flip.file, flip.apply(sources[name][flip.file]))
        verdict = judge(changed, emitted[name].spec, fuzz=RANDOM_CASES)
        found = f"{verdict.case}: {verdict.seen}"
        if verdict.passed:
            found = f"ESCAPED, {verdict.witness}" if verdict.witness else "right on random cases too"
        record_property("mutation", f"seed {SEED}: {name}/{flip} -> {found}")
        wrong += not verdict.passed or bool(verdict.witness)
        escaped += [f"{name}/{flip} -> {found}"] * bool(verdict.witness)
    with FileLock(of_all_parts / "lock"):
        (of_all_parts / f"part {part}").write_text(json.dumps([wrong, escaped]), encoding="utf-8")
        parts = [json.loads(path.read_text(encoding="utf-8")) for path in of_all_parts.glob("part *")]
    if len(parts) == PARTS:  # the last one judges
        shown_wrong, all_escaped = sum(part[0] for part in parts), [line for part in parts for line in part[1]]
        assert shown_wrong >= COUNT / 2
        assert len(all_escaped) <= (1 - CAUGHT) * shown_wrong, "\n".join(all_escaped)


@pytest.fixture
def of_all_parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the processes of one run share."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "flips"
    folder.mkdir(exist_ok=True)
    return folder


def test_a_flip_is_one_change_to_what_runs(sources: Sources) -> None:
    for files in sources.values():
        every = flips(files)
        assert len(every) > 500
        for flip in every[::50]:
            changed = flip.apply(files[flip.file])
            assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(files[flip.file])), flip


def test_what_a_cpu_does_not_run_is_left_alone() -> None:
    source = '''
def public(a, b):
    """Whether a < b."""
    if not on_cpu:
        return a - b
    x: int | None = a + 1
    unused = a + 1
    T.assume(a >= 0)
    return x if target == "cpu" and a < b else _private(a - tx)

def _private(a):
    return T.min(a, b - 1)

def _elsewhere(a):
    return a + 1
'''
    found = {(flip.line, flip.old, flip.new) for flip in flips({"a.py": source})}
    assert found == {
        (6, "+", "-"),
        (6, "1", "2"),
        (9, "and", "or"),
        (9, "<", "<="),
        (12, "min", "max"),
    }
