"""What a key takes, in words: read off the JSON schema, so that messages and model cannot disagree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

Path = tuple[str | int, ...]
Schema = Mapping[str, Any]


def expected(path: Path) -> str:
    """What belongs at `path`, as in "an integer from 1 to 128"."""
    schema = _at(path)
    if "const" in schema:
        return f"`{_yaml(schema['const'])}`"
    if "enum" in schema:
        return f"one of {listed(schema['enum'])}"
    match schema["type"]:
        case "integer":
            return _integer(schema)
        case "number":
            return f"a number from {schema['minimum']:.3g} to {schema['maximum']:.3g}"
        case "boolean":
            return "`true` or `false`"
        case "array":
            return f"a list of at least one of {listed(_resolve(schema['items'])['enum'])}"
        case "object":
            return "a mapping" + (f" with the keys {listed(schema['properties'])}" if "properties" in schema else "")
        case _:
            return "a string"


def options(path: Path) -> tuple[str, ...]:
    """The words that `path` chooses from; empty when it takes something else."""
    schema = _at(path)
    words = schema.get("enum", [schema["const"]] if "const" in schema else [])
    return tuple(word for word in words if isinstance(word, str))


def keys(path: Path) -> tuple[str, ...]:
    """The keys that the mapping at `path` may have."""
    schema = _at(path)
    return tuple(schema.get("properties", schema.get("propertyNames", {}).get("enum", ())))


def required_keys() -> tuple[str, ...]:
    """The keys that no spec goes without."""
    return tuple(_root()["required"])


def listed(words: Iterable[str]) -> str:
    """The words in backticks, with commas between."""
    return ", ".join(f"`{word}`" for word in words)


@cache
def _root() -> Schema:
    from v4gen.read.schema import json_schema  # only a faulty spec needs it

    return json_schema()


def _at(path: Path) -> Schema:
    schema = _root()
    for step in path:
        if isinstance(step, int):
            schema = schema["items"]
        else:
            schema = schema.get("properties", {}).get(step) or schema["additionalProperties"]
        schema = _resolve(schema)
    return schema


def _resolve(schema: Schema) -> Schema:
    return _root()["$defs"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def _integer(schema: Schema) -> str:
    kind = f"a multiple of {schema['multipleOf']}" if "multipleOf" in schema else "an integer"
    return f"{kind} from {schema['minimum']} to {schema['maximum']}"


def _yaml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
