"""What in a package's new text breaks callers of the old one: signatures, constants, sizes, the autograd contract.

Both are read as text. What is added breaks nobody, nor does a wider choice of arguments; the type of a parameter is not
compared, since wider and narrower look alike.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from v4gen.emit.api import public_api

# Constants that are part of what a package promises, and the modules that hold them.
_FACTS = {
    "_runtime": ("HEADS", "DIM", "DTYPE"),
    "tilelang_indexer": ("TOPK", "COMPRESS_RATIO"),
}
_ENTRY = "lightning_indexer"
# `q: [S, B, H, D] bfloat16` and `K = min(512, N)` in the entry point's docstring: the layout and the width.
_LAYOUT = re.compile(r"^\s*q: (\[[^\]]*\])", re.MULTILINE)
_WIDTH = re.compile(r"\bK = (min\(\d+, N\)|\d+)")


@dataclass(frozen=True)
class Break:
    """One change that breaks a caller: `name` is what of the package, `message` how, in words."""

    package: str
    name: str
    message: str

    def as_data(self) -> dict[str, str]:
        """JSON-ready data, keys in a fixed order."""
        return asdict(self)


def breaks(package: str, before: Mapping[str, str], now: Mapping[str, str] | None) -> tuple[Break, ...]:
    """Every change from the files `before` to those `now` that breaks a caller; None where the package is gone."""
    if now is None:
        return (Break(package, package, "the package is gone"),)
    found = [*_fact_breaks(before, now), *_api_breaks(public_api(before), public_api(now))]
    return tuple(Break(package, name, message) for name, message in found)


def _fact_breaks(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    old, new = _facts(before), _facts(now)
    for name, value in old.items():
        if name not in new:
            yield name, "it is gone"
        elif new[name] != value:
            yield name, f"it is {new[name]}, was {value}"
    for target in _targets(before):
        if target not in _targets(now):
            yield "TARGETS", f"there is no kernel for `{target}` any more"


def _facts(files: Mapping[str, str]) -> dict[str, str]:
    facts = {}
    for module, names in _FACTS.items():
        values = _assigned(files.get(f"{module}.py", ""))
        facts.update({name: ast.unparse(values[name]) for name in names if name in values})
    docstring = _docstring(files.get("tilelang_indexer.py", ""), _ENTRY)
    for name, pattern in (("layout of q", _LAYOUT), ("width K", _WIDTH)):
        if match := pattern.search(docstring):
            facts[name] = match[1]
    return facts


def _assigned(text: str) -> dict[str, ast.expr]:
    values: dict[str, ast.expr] = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            values[node.targets[0].id] = node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            values[node.target.id] = node.value
    return values


def _docstring(text: str, function: str) -> str:
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return ast.get_docstring(node) or ""
    return ""


def _targets(files: Mapping[str, str]) -> list[str]:
    table = _assigned(files.get("_runtime.py", "")).get("TARGETS")
    keys = table.keys if isinstance(table, ast.Dict) else []
    return [key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]


def _api_breaks(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    added = {name: contract for name, contract in now.items() if name not in before}
    for name, contract in before.items():
        if name not in now:
            yield name, _gone(name, contract, added)
        elif now[name] == contract:
            continue
        elif name.endswith(".__all__"):
            missing = sorted(set(ast.literal_eval(contract)) - set(ast.literal_eval(now[name])))
            yield from ((name, f"`{export}` is not exported any more") for export in missing)
        elif contract.startswith("("):
            yield from ((name, message) for message in _contract_breaks(contract, now[name]))
        else:
            yield name, f"it is {now[name]}, was {contract}"


def _gone(name: str, contract: str, added: Mapping[str, str]) -> str:
    likely = [other for other, new in added.items() if new == contract and contract.startswith("(")]
    return f"it is gone; renamed to `{likely[0].rpartition('.')[2]}`?" if likely else "it is gone"


def _contract_breaks(before: str, now: str) -> Iterator[str]:
    """Between two entries of `public_api`: a signature, and for autograd what else its users rely on."""
    (old, *old_rest), (new, *new_rest) = before.split("; "), now.split("; ")
    yield from _signature_breaks(_parse(old), _parse(new))
    for clause in old_rest:
        # How the gradients are computed is nobody's business; how many of them are None is.
        if clause.startswith("returns "):
            found = next((other for other in new_rest if other.startswith("returns ")), "")
            if clause.count("None") != found.count("None"):
                yield f"other inputs get a gradient: it {found or 'returns nothing'}, was {clause}"
        elif clause not in new_rest:
            yield f"autograd: `{clause}` is gone"
    for clause in new_rest:
        if clause not in old_rest and not clause.startswith("returns "):
            yield f"autograd: `{clause}` is new"


def _parse(signature: str) -> ast.FunctionDef:
    (function,) = ast.parse(f"def f{signature}: ...").body
    assert isinstance(function, ast.FunctionDef)
    return function


def _signature_breaks(before: ast.FunctionDef, now: ast.FunctionDef) -> Iterator[str]:
    yield from _position_breaks(before.args, now.args)
    old, new = _parameters(before.args), _parameters(now.args)
    for name, default in old.items():
        if name not in new:
            yield f"it takes no `{name}` any more"
        elif new[name] != default:
            yield f"`{name}` {_default(new[name])}, {_default(default, 'had')}"
    for name, default in new.items():
        if name not in old and default is None:
            yield f"it needs a new `{name}`"
    returns, returned = now.returns, before.returns
    if (returned and ast.unparse(returned)) != (returns and ast.unparse(returns)):
        new_type = ast.unparse(returns) if returns else "nothing known"
        yield f"it returns {new_type}, was {ast.unparse(returned) if returned else 'nothing known'}"


def _position_breaks(before: ast.arguments, now: ast.arguments) -> Iterator[str]:
    old = [argument.arg for argument in (*before.posonlyargs, *before.args)]
    new = [argument.arg for argument in (*now.posonlyargs, *now.args)]
    keyword_only = {argument.arg for argument in now.kwonlyargs}
    for name in old:
        if name in keyword_only:
            yield f"`{name}` is taken by keyword only"
    kept = [name for name in old if name in new]
    if kept != new[: len(kept)]:
        yield f"positions changed: {', '.join(new)}, was {', '.join(old)}"


def _parameters(arguments: ast.arguments) -> dict[str, str | None]:
    """Name → default as text, None without one; in order."""
    positional = [*arguments.posonlyargs, *arguments.args]
    padding: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    defaults = [*padding, *arguments.defaults, *arguments.kw_defaults]
    names = [argument.arg for argument in (*positional, *arguments.kwonlyargs)]
    return {name: ast.unparse(value) if value else None for name, value in zip(names, defaults, strict=True)}


def _default(default: str | None, verb: str = "has") -> str:
    return f"{verb} no default" if default is None else f"{verb} the default {default}"
