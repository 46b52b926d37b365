"""Writes what is known of each spec on each target into docs/specs.md, from docs/records: `python docs/targets.py`."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from v4gen.plan.target import TARGETS

PAGE = Path(__file__).with_name("specs.md")
RECORDS = Path(__file__).with_name("records")
SPECS = Path(__file__).parents[1] / "specs"
BEGIN = "<!-- this table is made by docs/targets.py from docs/records -->"
END = "<!-- end of this table -->"

# From the least to the most that a record can tell of a spec on a target.
LOWERED, COMPILED, RUN, MEASURED = STAGES = ("lowered", "compiled", "run", "run, measured")


def page(text: str) -> str:
    """`text`, the page, with the table of the records as they are now."""
    before, found, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise ValueError(f"{PAGE.name} lacks the lines between which the table stands")
    return f"{before}{BEGIN}\n\n" + "\n".join(table(read_records())) + f"\n\n{END}{after}"


def read_records() -> list[dict[str, Any]]:
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RECORDS.glob("*.json"))]


def table(records: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A line a spec: the most that any record tells of it on each target, and the device that it ran on."""
    found: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for record in records:
        for spec, target, stage in told_by(record):
            device = record["machine"]["name"] if stage in (RUN, MEASURED) and target != "cpu" else ""
            found.setdefault((spec, target), set()).add((stage, device))
    yield f"| spec | {' | '.join(f'`{target}`' for target in TARGETS)} |"
    yield f"| --- |{' --- |' * len(TARGETS)}"
    for spec in sorted(path.stem for path in SPECS.glob("*.yaml")):
        yield f"| `{spec}` | {' | '.join(_cell(found.get((spec, target), set())) for target in TARGETS)} |"


def told_by(record: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Spec, target and stage of everything that a record tells; nothing of what failed or names no target."""
    if validation := record.get("validation"):
        if validation["passed"]:
            yield from _ran(validation["spec"], validation, record, RUN)
    elif bench := record.get("bench"):
        # Older records name the spec in the command line alone, or nowhere.
        named = [bench["spec"]] if "spec" in bench else [Path(w).stem for w in record["command"] if w.endswith(".yaml")]
        if len(named) == 1:
            yield from _ran(named[0], bench, record, MEASURED)
    elif families := record.get("families"):
        results = {result["identity"]: result for result in families["results"]}
        stages: dict[tuple[str, str], set[str]] = {}
        for kernel in families["kernels"]:
            result = results.get(kernel["identity"])
            stage = result["stage"] if result and not result["problem"] else ""
            stages.setdefault((kernel["spec"], kernel["target"]), set()).add(stage)
        for (spec, target), reached in stages.items():
            if reached <= set(STAGES):
                yield spec, target, min(reached, key=STAGES.index)


def _ran(spec: str, data: Mapping[str, Any], record: Mapping[str, Any], stage: str) -> Iterator[tuple[str, str, str]]:
    # Older records do not name the target; a CPU has but one.
    target = data.get("target") or ("cpu" if record["machine"]["device"] == "cpu" else "")
    if target:
        yield spec, target, stage


def _cell(found: set[tuple[str, str]]) -> str:
    """Timings of what no validation passed count for nothing: a wrong kernel may be fast."""
    stages = {stage for stage, _ in found}
    if RUN not in stages:
        stages.discard(MEASURED)
    if not stages:
        return ""
    best = max(stages, key=STAGES.index)
    devices = sorted({device for stage, device in found if stage == best and device})
    return f"{best} ({', '.join(devices)})" if devices else best


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8", newline="\n")
