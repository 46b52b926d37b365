"""Whether changed modules still make the same kernels: their functions traced from both texts, and compared as IR.

Needs TileLang and no GPU, and runs the code on disk. What the IR cannot see is held to its syntax tree: a module is
cosmetic only if it differs in nothing but comments, docstrings, and kernel factories whose every trace is equal, at the
schedules that the package carries.
"""

from __future__ import annotations

import ast
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from v4gen.emit.compare import Drift, Effect, FileDrift
from v4gen.emit.layout import without_docstrings
from v4gen.emit.package import Package
from v4gen.emit.standing import read_text
from v4gen.emit.write import write_package
from v4gen.plan.target import TARGETS
from v4gen.run.lower import ALL_GRADIENTS, kernels_for, quiet, trace
from v4gen.run.package import imported_package

# A backward kernel is another one for each set of gradients asked for: with all, and with each alone, every part of it
# is once in and once out.
_GRADIENTS = (ALL_GRADIENTS, (True, False, False), (False, True, False), (False, False, True))


class Factory(NamedTuple):
    """A module-level function that builds a kernel."""

    module: str
    name: str


@dataclass
class Traced:
    """The functions traced from one package, by a name for a person, and the factories that made each of them."""

    functions: dict[str, Any] = field(default_factory=dict)
    factories: dict[str, set[Factory]] = field(default_factory=dict)

    def made_in(self, module: str) -> dict[str, set[str]]:
        """Function → those of its factories that stand in `module`, where there are any."""
        found = {
            name: {made.name for made in makers if made.module == module} for name, makers in self.factories.items()
        }
        return {name: makers for name, makers in found.items() if makers}


def classify(drift: Sequence[FileDrift], packages: Sequence[Package], output: Path) -> tuple[FileDrift, ...]:
    """`drift` with the effect of each changed module; one that turns out cosmetic is a notice.

    Without TileLang, and where a text cannot be traced, a change counts as semantic.
    """
    found = {entry.path: entry for entry in drift}
    for package in packages:
        folder = output / package.name
        changed = [entry for entry in drift if entry.path.parent == folder and _is_changed_module(entry)]
        for entry, problem in _problems(changed, package, folder):
            effect = Effect.SEMANTIC if problem else Effect.COSMETIC
            kind = entry.kind if problem else Drift.COSMETIC
            reason = "; ".join(filter(None, (entry.reason, problem or "the kernels' IR is the same")))
            found[entry.path] = replace(entry, kind=kind, effect=effect, reason=reason)
    return tuple(found[entry.path] for entry in drift)


def _is_changed_module(entry: FileDrift) -> bool:
    return entry.path.suffix == ".py" and entry.kind in (Drift.EDITED, Drift.OUTDATED)


def _problems(changed: Sequence[FileDrift], package: Package, folder: Path) -> Iterator[tuple[FileDrift, str]]:
    """Each changed module with why it is not the same; an empty text where it is."""
    if not changed:
        return
    if find_spec("tilelang") is None:
        yield from ((entry, "tilelang is not there to compare the kernels") for entry in changed)
        return
    texts = {entry.path: (read_text(entry.path) or "", package.files[entry.path.name]) for entry in changed}
    to_trace = []
    for entry in changed:
        difference = _other_code(*texts[entry.path], without=set())
        if difference and all(map(_factories_in, texts[entry.path])):
            to_trace.append(entry)
        else:
            yield entry, difference  # in comments and docstrings alone, or where no kernel is made
    if not to_trace:
        return
    try:
        with tempfile.TemporaryDirectory(prefix="v4gen-") as due, quiet():
            write_package(package, Path(due))
            modules = {entry.path.name for entry in to_trace}
            with _traced(folder, modules) as old, _traced(Path(due), modules) as new:
                for entry in to_trace:
                    yield entry, _difference(entry.path.name, *texts[entry.path], old, new)
    except Exception as error:  # somebody's edited code runs here: anything may come out
        problem = f"its kernels cannot be traced: {type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        yield from ((entry, problem) for entry in to_trace)


@contextmanager
def _traced(folder: Path, modules: set[str]) -> Iterator[Traced]:
    """Every kernel that `modules` of the package in `folder` make, for every target that it carries a schedule for."""
    traced = Traced()
    with imported_package(folder) as package:
        for target in package.fwd.SCHEDULES:
            for kernel in kernels_for(TARGETS[target], reproducible=True):
                takes_gradients = kernel in ("backward", "backward_deterministic")
                for needs in _GRADIENTS if takes_gradients else (ALL_GRADIENTS,):
                    name = f"{kernel} for {target}" + (f" with gradients {needs}" if needs != ALL_GRADIENTS else "")
                    with _factories(folder) as makers:
                        function = trace(package, kernel, target, needs)
                    if not any(maker.module in modules for maker in makers):
                        break  # made elsewhere, whatever the gradients
                    traced.functions[name], traced.factories[name] = function, makers
        yield traced


@contextmanager
def _factories(folder: Path) -> Iterator[set[Factory]]:
    """The kernel factories of the modules in `folder` that run meanwhile."""
    inside = folder.resolve()
    found: set[Factory] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and _is_factory(code.co_name):
            path = Path(code.co_filename)
            if path.parent == inside:
                found.add(Factory(path.name, code.co_name))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(before)


def _is_factory(name: str) -> bool:
    return name.startswith("get_") and "kernel" in name


def _factories_in(text: str) -> list[str]:
    """The kernel factories that `text` defines; none where it does not parse."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return []
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and _is_factory(node.name)]


def _difference(module: str, found: str, due: str, old: Traced, new: Traced) -> str:
    """How the text `found` of `module` differs from `due` in what it does; empty where it does not."""
    from tilelang import tvm

    makers, due_makers = old.made_in(module), new.made_in(module)
    if added := due_makers.keys() - makers.keys():
        return f"kernel {min(added)} is not made here"
    for name in due_makers:
        functions = old.functions[name], new.functions[name]
        mismatch = tvm.ir.base.get_first_structural_mismatch(*functions, True, True)
        if mismatch is not None:
            return f"kernel {name} differs: {_node(functions, mismatch)}"
    compared = set().union(*makers.values()) & set().union(*due_makers.values())
    return _other_code(found, due, without=compared)


def _node(functions: tuple[Any, Any], mismatch: Any) -> str:
    """The first node at which two functions differ, with both its values where those are short."""
    at, there = (str(path).removeprefix("<root>.") for path in mismatch)
    values = [_shown(_reached(function, path)) for function, path in zip(functions, mismatch, strict=True)]
    place = at if at == there else f"{at} and {there}"
    return f"`{place}`" + (f" is {values[0]}, would be {values[1]}" if all(values) else "")


def _reached(function: Any, path: Any) -> Any:
    """What stands at `path` of `function`; None where it cannot be reached by attributes and indices."""
    node = function
    for step in path.to_steps():
        try:
            node = getattr(node, step.key) if isinstance(step.key, str) and hasattr(node, step.key) else node[step.key]
        except (AttributeError, IndexError, KeyError, TypeError):
            return None
    return node


def _shown(value: Any) -> str:
    text = str(value) if value is not None else ""
    return text if "\n" not in text and len(text) <= 60 else ""


def _other_code(found: str, due: str, *, without: set[str]) -> str:
    """The first difference between two texts outside the functions `without`; empty where there is none."""
    try:
        before, after = (_statements(text, without) for text in (found, due))
    except (SyntaxError, ValueError) as error:
        return f"it does not parse: {error}"
    for old, new in zip(before, after, strict=False):
        if ast.dump(old) != ast.dump(new):
            return f"code outside the compared kernels differs, first at `{_head(new)}`"
    if len(before) != len(after):
        return "code outside the compared kernels was added or removed"
    return ""


def _statements(text: str, without: set[str]) -> list[ast.stmt]:
    tree = ast.parse(text)
    without_docstrings(tree)
    return [node for node in tree.body if not (isinstance(node, ast.FunctionDef) and node.name in without)]


def _head(node: ast.stmt) -> str:
    return ast.unparse(node).partition("\n")[0][:60]
