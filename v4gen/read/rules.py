"""What must hold between the keys of a spec, each good by itself."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

# (layout, mask) pairs that have a meaning → whether this version emits them.
PAIRS = {
    ("SBHD", "causal"): True,
    ("BSHD", "causal"): True,
    ("SBHD", "ranges"): False,
    ("BSHD", "ranges"): False,
    ("THD", "ranges"): False,
    ("THD", "varlen"): False,
}
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
    if layout is None or mask is None:
        return
    ready = PAIRS.get((str(layout), str(mask)))
    if ready is None:
        masks = [other for known, other in PAIRS if known == layout]
        hint = f"layout `{layout}` goes with mask {' or '.join(f'`{other}`' for other in masks)}"
        yield Conflict("illegal-pair", "mask", "layout", f"layout `{layout}` has no mask `{mask}`", hint)
    elif not ready:
        message = f"mask `{mask}` with layout `{layout}` is not supported yet"
        yield Conflict("not-yet", "mask", "layout", message, "this version emits `causal`, with `SBHD` and `BSHD`")


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
