"""What a package was made from, as digests: enough to say later why the output would differ now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from functools import cache
from importlib.metadata import version
from types import MappingProxyType

from v4gen.digest import digest_data
from v4gen.plan.plan import Plan, TargetPlan
from v4gen.resources import template_names, template_text

Schedule = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Provenance:
    """Digests of the spec's values, the plan and the templates; the formatter with its version; each target's sizes."""

    spec: str = ""
    plan: str = ""
    templates: str = ""
    formatter: str = ""
    schedule: Mapping[str, Schedule] = field(default_factory=lambda: MappingProxyType({}))

    def changes(self, now: Provenance) -> list[str]:
        """What is another in `now`, as the ends of sentences, nearest cause first.

        A changed spec gives another plan, which is then no cause of its own.
        """
        if self.spec != now.spec:
            causes = ["the spec changed"]
        else:
            causes = ["v4gen plans it differently"] if self.plan != now.plan else []
        if self.templates != now.templates:
            causes.append("the templates changed")
        if self.formatter != now.formatter:
            causes.append(f"the formatter is {now.formatter}, was {self.formatter}")
        return causes


UNKNOWN = Provenance()


def provenance(plan: Plan) -> Provenance:
    """What the package of `plan` is made from."""
    sizes = {name: value for name, value in asdict(plan).items() if name != "spec_digest"}
    schedule = {entry.target.name: _sizes(entry) for entry in plan.targets}
    return Provenance(plan.spec_digest, digest_data(sizes), _templates(), _formatter(), MappingProxyType(schedule))


def _sizes(entry: TargetPlan) -> Schedule:
    """Every kernel's sizes under the names that pin them, such as `scores_block_n`."""
    kernels = {part.name: getattr(entry, part.name) for part in fields(entry) if part.name != "target"}
    return MappingProxyType(
        {
            f"{kernel}_{size}": value
            for kernel, schedule in kernels.items()
            if is_dataclass(schedule) and not isinstance(schedule, type)
            for size, value in asdict(schedule).items()
        }
    )


@cache
def _templates() -> str:
    return digest_data({name: template_text(name) for name in template_names()})


@cache
def _formatter() -> str:
    return f"ruff {version('ruff')}"
