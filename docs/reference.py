"""Writes the tables of the spec reference from the JSON schema: `python docs/reference.py` renews docs/specs.md."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from v4gen.read.expected import expected, listed
from v4gen.read.rules import MASKS
from v4gen.read.schema import json_schema

PAGE = Path(__file__).with_name("specs.md")
BEGIN = "<!-- the tables are made by docs/reference.py -->"
END = "<!-- end of the tables -->"


def page(text: str) -> str:
    """`text`, the page, with the tables of the schema as it is now."""
    before, found, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise ValueError(f"{PAGE.name} lacks the lines between which the tables stand")
    return f"{before}{BEGIN}\n\n" + "\n".join(_tables()) + f"\n\n{END}{after}"


def _tables() -> Iterator[str]:
    schema = json_schema()
    yield from _table(schema, ())
    for key, value in schema["properties"].items():
        if "$ref" in value:
            yield from ("", f"### `{key}`", "")
            yield from _table(schema["$defs"][value["$ref"].rpartition("/")[2]], (key,))
    yield from ("", "### `layout` and `mask`", "", "| layout | masks |", "| --- | --- |")
    yield from (f"| `{layout}` | {listed(masks)} |" for layout, masks in MASKS.items())


def _table(schema: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    yield "| key | value | default | meaning |"
    yield "| --- | --- | --- | --- |"
    for key, value in schema["properties"].items():
        required = key in schema.get("required", ())
        default = "required" if required else f"`{_yaml(value['default'])}`"
        yield f"| `{key}` | {_value(value, (*path, key))} | {default} | {value['description']} |"


def _value(value: Mapping[str, Any], path: tuple[str, ...]) -> str:
    if "propertyNames" in value:
        return f"a mapping of sizes for any of {listed(value['propertyNames']['enum'])}"
    return expected(path)


def _yaml(value: object) -> str:
    return value if isinstance(value, str) and value else json.dumps(value).replace('"', "") or '""'


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8", newline="\n")
