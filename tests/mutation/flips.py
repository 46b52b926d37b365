"""Wrong packages by the hundred: operators of emitted source flipped, one a package, by rules.

A flip changes one operator, bound, constant or order of operands in the body of a function. Left alone is what cannot
change a result on a CPU:

- text: docstrings, comments, annotations, decorators, and what a `raise` says;
- the arm of a condition that a CPU does not take, private functions and variables that nothing else uses then, the
  choice of a target, what serves targets without kernels, and which of several tensors is asked for its device;
- promises to the compiler (`T.assume`, `T.annotate_…`), the sizes of buffers (`T.alloc_…`), and how work is spread:
  over threads, processors, windows and bins, where any way that leaves nothing out is right;
- the one thread's index, which is 0, and the step that cuts a batch beyond what a grid can have;
- where a clamp stops that keeps an address legal: what it loads then is thrown away;
- the comparison of a choice between the two values compared, which are the same where it matters.

Constants count up only, and negative ones stay: one less than 0 marks what is void, as any negative number does, or is
the last of several, often the same.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

COMPARISONS: Mapping[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
}
OPERATORS: Mapping[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
}
OPPOSITES = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum"}
IN_ORDER = {"truncdiv", "truncmod", "ceildiv", "div", "atomic_add", "copy"}
"""Functions of two operands that cannot be swapped."""
BRANCHES = {"if_then_else", "where"}

ON_A_CPU: Sequence[tuple[str, bool]] = (
    (r"on_cpu|target == 'cpu'|.*device\.type == 'cpu'", True),
    (r"\w+\.is_cpu|name not in PORTABLE or isinstance\(target, str\)", True),
    (r"columns == 0 or kernel is None", False),
    (r"on_cuda|target\.startswith\('sm_'\)|.*device\.type == 'cuda'|\w+\.is_cuda|deterministic", False),
)
"""Conditions that are known of a CPU, by their text. `deterministic` kernels add in fixed point, on GPUs alone."""

PROMISES = re.compile("assume|annotate_.*|alloc_.*")
TUNING = {"threads", "num_stages", "policy", "prelude", "vector_bytes"}
SPREADING_FILES = {"_windows.py"}
SPREADING = {
    "share_out",
    "processors",
    "get_scores_kernel.visible_keys",  # a tile more than need be is masked
    "radix_bin",
    "radix_bin_floor",
    "linear_bin",
    "sort_by_network",  # a network larger than need be sorts as well
    "bit_length",
    "schedule_for",
    "get_select_kernel.narrow",  # a bound lower than need be lets more candidates through, of which the best are kept
}
"""Files and functions that say how work is spread."""

ELSEWHERE = {"select_by_sorting", "sort_keys", "cpu_flags"}
"""Functions that serve targets without kernels, and a compiler."""

HOMES: Mapping[str, tuple[str, ...]] = {
    "_selection.py": ("ranges",),
    "_block_sort.py": ("ranges",),
    "_mask.py": ("packed", "ranges"),
    "_ops.py": ("seed", "packed", "ranges"),
    "_runtime.py": ("seed", "ranges"),
    "_scores.py": ("seed", "operator", "packed"),
    "_backward.py": ("padded", "operator"),
    "reference.py": ("operator", "packed", "ranges"),
    "tilelang_indexer_topk.py": ("packed", "ranges"),
}
"""Where a file is flipped, if not everywhere: packages share most of it, and some leave little to go wrong in a part.

Their heads fill every tile, say, or all ranges start at key 0.
"""

THREAD = re.compile(r"tx( \* \w+)*")


@dataclass(frozen=True)
class Flip:
    """One change to one file: the bytes from `start` to `end` become `new`."""

    file: str
    line: int
    function: str
    start: int
    end: int
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.function}: `{self.old}` -> `{self.new}`"

    def apply(self, source: str) -> str:
        """The source with the change."""
        data = source.encode()
        return (data[: self.start] + self.new.encode() + data[self.end :]).decode()


def draw(packages: Mapping[str, Mapping[str, str]], seed: str, count: int) -> list[tuple[str, Flip]]:
    """So many flips of `packages` (name to file to source), any as likely as the others, with their packages' names."""
    every = [
        (name, flip) for name in packages for flip in flips(packages[name]) if name in HOMES.get(flip.file, (name,))
    ]
    return random.Random(seed).sample(every, count)


def flips(sources: Mapping[str, str]) -> list[Flip]:
    """Every flip of a package, whose files are `sources`, in their order."""
    trees = {file: ast.parse(source) for file, source in sources.items()}
    used = {name for tree in trees.values() for name in _names(tree)}
    trees = {file: tree for file, tree in trees.items() if file not in SPREADING_FILES}
    return [flip for file, tree in trees.items() for flip in _Walk(file, sources[file], used).flips(tree)]


def _names(tree: ast.AST) -> Iterator[str]:
    """What the code that a CPU runs refers to."""
    for node in _reachable(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        if isinstance(node, ast.Attribute):
            yield node.attr


def _reachable(node: ast.AST) -> Iterator[ast.AST]:
    """The node and all below it, without the arms that a CPU does not take."""
    yield node
    for child in _taken(node):
        yield from _reachable(child)


def _taken(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, (ast.If, ast.IfExp)) and (known := _known(node.test)) is not None:
        arm = node.body if known else node.orelse
        yield from arm if isinstance(arm, list) else [arm]
    elif isinstance(node, ast.BoolOp):
        for value in node.values:
            if (known := _known(value)) is None:
                yield value
            elif known != isinstance(node.op, ast.And):
                return
    else:
        for child in ast.iter_child_nodes(node):
            yield child
            if isinstance(child, ast.If) and _known(child.test) and isinstance(child.body[-1], ast.Return):
                return


def _known(test: ast.expr) -> bool | None:
    """The value of a condition on a CPU, if it is known."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return None if (known := _known(test.operand)) is None else not known
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return False if False in [_known(value) for value in test.values] else None
    text = ast.unparse(test)
    return next((value for pattern, value in ON_A_CPU if re.fullmatch(pattern, text)), None)


class _Walk:
    """Collects the flips of one file."""

    def __init__(self, file: str, source: str, used: set[str]) -> None:
        self._file, self._data, self._used = file, source.encode(), used
        self._lines = [0]
        for line in self._data.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def flips(self, tree: ast.Module) -> Iterator[Flip]:
        for node in tree.body:
            yield from self._definition(node, "")

    def _definition(self, node: ast.AST, outer: str) -> Iterator[Flip]:
        if isinstance(node, ast.ClassDef):
            for statement in node.body:
                yield from self._definition(statement, f"{outer}{node.name}.")
        if isinstance(node, ast.FunctionDef) and self._matters(node.name, f"{outer}{node.name}"):
            for child in _taken(ast.Module(node.body, [])):
                yield from self._inside(child, f"{outer}{node.name}")

    def _matters(self, name: str, path: str) -> bool:
        return (name in self._used or not name.startswith("_")) and not {name, path} & (SPREADING | ELSEWHERE)

    def _inside(self, node: ast.AST, function: str) -> Iterator[Flip]:
        if isinstance(node, ast.FunctionDef):
            yield from self._definition(node, f"{function}.")
            return
        if self._cannot_matter(node):
            return
        yield from self._of(node, function)
        skipped = set(map(id, _moot(node)))
        for child in _taken(node):
            if id(child) not in skipped:
                yield from self._inside(child, function)

    def _cannot_matter(self, node: ast.AST) -> bool:
        match node:
            case ast.Raise() | ast.JoinedStr() | ast.ClassDef() | ast.Attribute(attr="device"):
                return True
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
                return PROMISES.fullmatch(name) is not None
            case ast.Call(func=ast.Name("range"), args=[_, _, ast.Name(id=name)]) if name.startswith("MAX_"):
                return True
            case ast.keyword(arg=name):
                return name in TUNING
            case ast.Assign(targets=[ast.Name(id=name)]):
                return name not in self._used or name == "target"
        return isinstance(node, ast.expr) and THREAD.fullmatch(ast.unparse(node)) is not None

    def _of(self, node: ast.AST, function: str) -> Iterator[Flip]:
        """The flips of this node itself."""
        match node:
            case ast.Compare():
                for (left, right), op in zip(pairwise([node.left, *node.comparators]), node.ops, strict=True):
                    if type(op) in COMPARISONS:
                        yield self._between(left, right, *COMPARISONS[type(op)], function)
            case ast.BinOp(right=right) if THREAD.fullmatch(ast.unparse(right)):
                return
            case ast.BinOp() if type(node.op) in OPERATORS:
                yield self._between(node.left, node.right, *OPERATORS[type(node.op)], function)
                if isinstance(node.op, (ast.Sub, ast.LShift, ast.RShift)):
                    yield from self._swapped(node.left, node.right, function)
            case ast.BinOp() if isinstance(node.op, (ast.FloorDiv, ast.Mod)):
                yield from self._swapped(node.left, node.right, function)
            case ast.BoolOp():
                word, other = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
                for left, right in pairwise(node.values):
                    yield self._between(left, right, word, other, function)
            case ast.UnaryOp(op=ast.Not()):
                yield self._flip(self._start(node), self._start(node.operand), "", function)
            case ast.Call():
                yield from self._of_call(node, function)
            case ast.Subscript(slice=ast.Tuple(elts=elements)):
                for left, right in pairwise(elements):
                    yield from self._swapped(left, right, function)
            case ast.Constant(value=int(value)) if not isinstance(value, bool):
                yield self._flip(self._start(node), self._end(node), str(value + 1), function)

    def _of_call(self, node: ast.Call, function: str) -> Iterator[Flip]:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in OPPOSITES:
            end = self._end(node.func)
            yield self._flip(end - len(name), end, OPPOSITES[name], function)
        if name in IN_ORDER and len(node.args) >= 2:
            yield from self._swapped(node.args[0], node.args[1], function)
        if name in BRANCHES and len(node.args) == 3:
            yield from self._swapped(node.args[1], node.args[2], function)

    def _between(self, left: ast.expr, right: ast.expr, old: str, new: str, function: str) -> Flip:
        """The operator that stands between two operands, parentheses aside."""
        start = self._data.index(old.encode(), self._end(left), self._start(right))
        return self._flip(start, start + len(old), new, function)

    def _swapped(self, left: ast.expr, right: ast.expr, function: str) -> Iterator[Flip]:
        """Two operands in each other's place, if they are not the same."""
        (a, b), (c, d) = (self._with_parentheses(node) for node in (left, right))
        one, between, other = (self._data[i:j].decode() for i, j in ((a, b), (b, c), (c, d)))
        if one != other and not isinstance(left, ast.Slice) and not isinstance(right, ast.Slice):
            yield self._flip(a, d, other + between + one, function)

    def _with_parentheses(self, node: ast.expr) -> tuple[int, int]:
        start, end = self._start(node), self._end(node)
        return (
            (start - 1, end + 1) if self._data[start - 1 : start] + self._data[end : end + 1] == b"()" else (start, end)
        )

    def _flip(self, start: int, end: int, new: str, function: str) -> Flip:
        line = self._data.count(b"\n", 0, start) + 1
        return Flip(self._file, line, function, start, end, self._data[start:end].decode(), new)

    def _start(self, node: ast.expr) -> int:
        return self._lines[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr) -> int:
        assert node.end_lineno and node.end_col_offset  # as in whatever was parsed
        return self._lines[node.end_lineno - 1] + node.end_col_offset


def _moot(node: ast.AST) -> Iterator[ast.AST]:
    """Children in which no flip could be seen, or for which there are flips of the whole."""
    match node:
        case ast.AnnAssign(annotation=annotation):
            yield annotation
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant() as constant):
            yield constant
        case ast.Call(func=ast.Attribute(attr="min"), args=[_, ast.BinOp(op=ast.Sub(), right=ast.Constant(1)) as end]):
            yield end
        case ast.Call(func=ast.Attribute(attr="max"), args=[_, ast.Constant(0) as end]):
            yield end
        case ast.Call(func=ast.Attribute(attr="if_then_else"), args=[ast.Compare(comparators=[right]) as test, a, b]):
            if {_number(test.left), _number(right)} == {_number(a), _number(b)}:
                yield test


def _number(node: ast.expr) -> str:
    """The text of an expression, a constant's type left out."""
    return re.sub(r"T\.float32\((.*)\)", r"\1", ast.unparse(node))
