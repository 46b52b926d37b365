"""What the compiler gets wrong without a word stays out of every emitted kernel: read off the shipped packages."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

GENERATED = Path(__file__).parents[2] / "generated"
MODULES = sorted(path for path in GENERATED.glob("*/*.py"))
KERNELS = [path for path in MODULES if "@T.prim_func" in path.read_text(encoding="utf-8")]


def names_in(node: ast.AST) -> set[str]:
    """Every attribute and name in `node`."""
    found = {child.attr for child in ast.walk(node) if isinstance(child, ast.Attribute)}
    return found | {child.id for child in ast.walk(node) if isinstance(child, ast.Name)}


def pipelined_loops(tree: ast.AST) -> Iterator[ast.For]:
    for node in ast.walk(tree):
        if isinstance(node, ast.For) and "Pipelined" in names_in(node.iter):
            yield node


def test_there_are_kernels_and_pipelined_loops_to_look_at() -> None:
    assert len(KERNELS) >= 4 * 9
    assert any([*pipelined_loops(ast.parse(path.read_text(encoding="utf-8")))] for path in KERNELS)


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_kernels_keep_clear_of_the_compiler_s_traps(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    names = names_in(tree)
    # An asynchronous product in a pipelined loop is read after its stage has been released.
    for loop in pipelined_loops(tree):
        assert "wgmma_gemm" not in names_in(loop)
    # Without the automatic barriers nothing separates two buffers that share memory.
    if "TL_DISABLE_THREAD_STORAGE_SYNC" in names:
        assert "TL_DISABLE_SHARED_MEMORY_REUSE" in names
        assert {"sync", "sync_threads"} & names
    # It guards the accesses past the end of a tensor.
    assert "TL_DISABLE_SAFE_MEMORY_ACCESS" not in names and "disable_safe_memory_legalize" not in text
    # TileLang evaluates annotations: as strings they are none.
    futures = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    assert not futures


def test_what_is_scheduled_by_hand_for_hopper_is_taken_there_alone() -> None:
    for path in KERNELS:
        if {"wgmma_gemm", "ptx_wait_group", "tma_store_arrive"} & names_in(ast.parse(path.read_text(encoding="utf-8"))):
            assert path.stem == "_backward_sm90"
    schedules = [path for path in MODULES if path.stem == "_backward_sm90"]
    assert schedules
    for path in schedules:
        (table,) = (
            node.value
            for node in ast.parse(path.read_text(encoding="utf-8")).body
            if isinstance(node, ast.Assign) and "SCHEDULES" in ast.dump(node.targets[0])
        )
        assert isinstance(table, ast.Dict)
        assert [key.value for key in table.keys if isinstance(key, ast.Constant)] == ["sm_90a"]
