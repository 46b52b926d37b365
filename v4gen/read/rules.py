"""What must hold between the keys of a spec, each good by itself."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

# The masks that have a meaning in each layout: packed tokens have documents, and no sequence to be causal in.
MASKS = {"SBHD": ("causal", "ranges"), "BSHD": ("causal", "ranges"), "THD": ("ranges", "varlen")}
# What a spec with the seed's names cannot do without.
SEED_NEEDS = {"layout": "SBHD", "mask": "causal", "width": "min"}


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two keys that contradict each other: `key` is to blame, or `because` where `key` is not written in the spec."""

    code: str
    key: str
    because: str
    message: str
    hint: str | None = None


def conflicts(values: Mapping[str, object], written: Collection[str]) -> Iterator[Conflict]:
    """Every conflict among `values`, given keys and defaults alike.

    A key whose own value was refused is left out of `values`, and what depends on it is not judged. `written` are the
    keys that the spec itself gives.
    """
    yield from _pair_conflicts(values)
    yield from _seed_conflicts(values, written)
    yield from _schedule_conflicts(values)
    if "index_base" in written and values.get("mask", "varlen") != "varlen":
        message = f"`index_base` says what varlen indices count from, and mask `{values['mask']}` has no documents"
        yield Conflict("index-base", "index_base", "mask", message, "remove `index_base`")


def _pair_conflicts(values: Mapping[str, object]) -> Iterator[Conflict]:
    layout, mask = values.get("layout"), values.get("mask")
    if layout is None or mask is None or mask in MASKS[str(layout)]:
        return
    if values.get("interface") == "seed":  # it decides on both
        return
    masks = " or ".join(f"`mask: {other}`" for other in MASKS[str(layout)])
    layouts = " or ".join(f"`layout: {other}`" for other, known in MASKS.items() if mask in known)
    message = f"layout `{layout}` has no mask `{mask}`"
    yield Conflict("illegal-pair", "mask", "layout", message, f"write {masks}; mask `{mask}` needs {layouts}")


def _seed_conflicts(values: Mapping[str, object], written: Collection[str]) -> Iterator[Conflict]:
    if values.get("interface") != "seed":
        return
    for key, needed in SEED_NEEDS.items():
        if values.get(key, needed) != needed:
            found = "this spec has" if key in written else "the default is"
            message = f"interface `seed` needs {key} `{needed}`, and {found} `{values[key]}`"
            hint = f"write `{key}: {needed}`, or `interface: operator`"
            yield Conflict("seed-interface", key, "interface", message, hint)


def _schedule_conflicts(values: Mapping[str, object]) -> Iterator[Conflict]:
    pinned, targets = values.get("schedule"), values.get("targets")
    if isinstance(pinned, Mapping) and isinstance(targets, Collection):
        for target in pinned:
            if target not in targets:
                message = f"`schedule.{target}` pins the schedule of a target that `targets` does not name"
                yield Conflict("schedule-target", "schedule", "targets", message, f"add `{target}` to `targets`")
