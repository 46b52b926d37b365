"""A package's public API and autograd contract, read from its text: nothing is imported or run.

Public is what a module without a leading underscore defines under a name without one, and what the seed's callers
import in spite of it. Kernel factories and schedules are left out: their parameters change with the schedule.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

# What code written for the hand-made modules imports although it is underscored, or no function.
_SEED_NAMES = ("_make_causal_cu_seqlens",)
_SEED_CONSTANTS = ("BF16", "FP32", "INT32", "pass_configs")

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def public_api(files: Mapping[str, str]) -> dict[str, str]:
    """`module.name` → what a caller relies on: a signature, a class's bases, a constant, or how it differentiates."""
    api: dict[str, str] = {}
    for path, text in sorted(files.items()):
        module = path.removesuffix(".py")
        if path.endswith(".py") and (module == "__init__" or not module.startswith("_")):
            api.update((f"{module}.{name}", contract) for name, contract in _module(ast.parse(text)))
    return api


def _module(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        if isinstance(node, _Function) and _is_public(node.name):
            yield node.name, _signature(node)
        elif isinstance(node, ast.ClassDef) and _is_public(node.name):
            yield from _class(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            yield from _constants(node)


def _is_public(name: str) -> bool:
    if name.startswith("get_") and name.endswith("_kernel"):
        return False
    return name in _SEED_NAMES or not (name.startswith("_") or name.endswith("Schedule"))


def _signature(function: _Function) -> str:
    returns = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    return f"({ast.unparse(function.args)}){returns}"


def _constants(node: ast.Assign | ast.AnnAssign) -> Iterator[tuple[str, str]]:
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        if not isinstance(target, ast.Name):
            continue
        if target.id == "__all__" and node.value:
            yield target.id, ast.unparse(node.value)
        elif target.id in _SEED_CONSTANTS:
            yield target.id, "a constant"


def _class(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    bases = ", ".join(map(ast.unparse, node.bases))
    yield node.name, f"class({bases})"
    differentiates = any(ast.unparse(base).endswith("autograd.Function") for base in node.bases)
    for method in node.body:
        if not isinstance(method, _Function):
            continue
        if differentiates and method.name in ("forward", "backward"):
            yield f"{node.name}.{method.name}", "; ".join(_autograd(method))
        elif not method.name.startswith("_") or method.name in ("__init__", "__call__"):
            yield f"{node.name}.{method.name}", _signature(method)


def _autograd(method: _Function) -> Iterator[str]:
    """The signature; which outputs carry no gradient; which inputs get one, and how often it can be taken."""
    yield _signature(method)
    for decorator in method.decorator_list:
        if ast.unparse(decorator) != "staticmethod":
            yield ast.unparse(decorator)
    for node in ast.walk(method):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".mark_non_differentiable"):
            yield ast.unparse(node)
        elif isinstance(node, ast.Return) and node.value and method.name == "backward":
            yield f"returns {ast.unparse(node.value)}"
