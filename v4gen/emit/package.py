"""Render a plan: one pure function from Plan to the text of every file of the package."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from v4gen.emit.format import format_sources
from v4gen.emit.provenance import UNKNOWN, Provenance, provenance
from v4gen.plan.plan import Plan
from v4gen.resources import template_text

if TYPE_CHECKING:
    from jinja2 import Environment

# Every file of a package and the template it comes from; None is an empty file.
FILES: Mapping[str, str | None] = MappingProxyType(
    {
        "__init__.py": "package.py.j2",
        "_arguments.py": "_arguments.py.j2",
        "_backward.py": "_backward.py.j2",
        "_backward_sm90.py": "_backward_sm90.py.j2",
        "_block_sort.py": "_block_sort.py.j2",
        "_fixed_point.py": "_fixed_point.py.j2",
        "_mask.py": "_mask.py.j2",
        "_ops.py": "_ops.py.j2",
        "_runtime.py": "_runtime.py.j2",
        "_scores.py": "_scores.py.j2",
        "_selection.py": "_selection.py.j2",
        "_windows.py": "_windows.py.j2",
        "py.typed": None,
        "reference.py": "reference.py.j2",
        "tilelang_indexer.py": "tilelang_indexer.py.j2",
        "tilelang_indexer_bwd.py": "tilelang_indexer_bwd.py.j2",
        "tilelang_indexer_fwd.py": "tilelang_indexer_fwd.py.j2",
        "tilelang_indexer_topk.py": "tilelang_indexer_topk.py.j2",
    }
)

# Files that only some packages have, and which those are.
CONDITIONS: Mapping[str, Callable[[Plan], bool]] = MappingProxyType(
    {
        "_backward_sm90.py": lambda plan: plan.has_backward_sm90,
        "_fixed_point.py": lambda plan: plan.has_gpu,
    }
)

MARKER = "@generated"


@dataclass(frozen=True)
class Package:
    """A generated package: its folder's name, its files (path → text with LF line ends), and what it was made from."""

    name: str
    files: Mapping[str, str]
    provenance: Provenance = UNKNOWN

    def __post_init__(self) -> None:
        for path, text in self.files.items():
            if "\r" in text:
                raise ValueError(f"{path}: carriage return in emitted text")
            if path.endswith(".py") and MARKER not in text.partition('"""')[0]:
                raise ValueError(f"{path}: emitted without its header")


def emit_packages(plans: Sequence[Plan]) -> tuple[Package, ...]:
    """The packages of `plans`, formatted in one run of the formatter.

    The bytes are a function of the plans, the templates and the formatter's version alone: no clock, path, locale,
    environment or hash order enters them.
    """
    rendered = {f"{plan.name}/{path}": _render(plan, path) for plan in plans for path in files_of(plan)}
    formatted = format_sources(rendered)
    return tuple(
        Package(
            plan.name,
            MappingProxyType({path: formatted[f"{plan.name}/{path}"] for path in files_of(plan)}),
            provenance(plan),
        )
        for plan in plans
    )


def files_of(plan: Plan) -> tuple[str, ...]:
    """The files of the package of `plan`, in a fixed order."""
    return tuple(path for path in FILES if path not in CONDITIONS or CONDITIONS[path](plan))


def _render(plan: Plan, path: str) -> str:
    template = FILES[path]
    return _environment().get_template(template).render(plan=plan) if template else ""


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    return Environment(
        loader=FunctionLoader(template_text),
        undefined=StrictUndefined,
        autoescape=False,  # the output is Python; the plan escapes what goes into docstrings
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
