"""Whether two texts are one module in two layouts: what a formatter may do to it, and no more."""

from __future__ import annotations

import ast
import inspect
import io
import tokenize
import warnings
from collections.abc import Callable


def same_code(one: str, other: str) -> bool:
    """Whether both hold the same code and the same comments, laid out differently.

    Formatting both again would not tell: a formatter keeps the line breaks that a narrower one introduced. The syntax
    trees do, with the comments in their order and docstrings without the indentation that formatters correct.
    """
    try:
        return _tree(one) == _tree(other) and _comments(one) == _comments(other)
    except (SyntaxError, ValueError, tokenize.TokenError, RecursionError):
        return False


def without_docstrings(tree: ast.AST) -> ast.AST:
    """`tree`, with every docstring empty; changed in place."""
    return _with_docstrings(tree, lambda _: "")


def _tree(text: str) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # somebody's edit may hold an invalid escape
        tree = ast.parse(text)
    return ast.dump(_with_docstrings(tree, _as_shown))


def _with_docstrings(tree: ast.AST, change: Callable[[str], str]) -> ast.AST:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or not node.body:
            continue
        first = node.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            first.value.value = change(first.value.value)
    return tree


def _as_shown(docstring: str) -> str:
    return "\n".join(line.rstrip() for line in inspect.cleandoc(docstring).strip().split("\n"))


def _comments(text: str) -> list[str]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [token.string.lstrip("#").strip() for token in tokens if token.type == tokenize.COMMENT]
