"""The JSON schema that editors use, and the model that decides."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from v4gen.read.schema import json_schema, schema_text
from v4gen.read.spec import spec_defaults

FILE = Path(__file__).parents[2] / "specs" / "v4gen-1.schema.json"


def objects(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield schema
    yield from schema["$defs"].values()


def test_the_shipped_schema_is_that_of_the_model() -> None:
    assert FILE.read_text(encoding="utf-8") == schema_text(), "run `v4gen schema` and put what it prints into the file"


def test_it_is_draft_2020_12_and_closed() -> None:
    schema = json_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert all(part["additionalProperties"] is False for part in objects(schema))
    assert schema["required"] == ["schema", "name", "heads", "dim", "topk", "compress_ratio"]


def test_every_key_is_described_and_every_optional_one_has_its_default() -> None:
    for part in objects(json_schema()):
        for key, value in part["properties"].items():
            assert value["description"].endswith("."), key
            assert ("default" in value) == (key not in part.get("required", ())), key
    properties = json_schema()["properties"]
    assert {key for key, value in properties.items() if "default" in value} == set(spec_defaults())


def test_it_knows_ranges_and_choices() -> None:
    properties = json_schema()["properties"]
    assert (properties["dim"]["minimum"], properties["dim"]["maximum"], properties["dim"]["multipleOf"]) == (
        16,
        256,
        16,
    )
    assert properties["layout"]["enum"] == ["SBHD", "BSHD", "THD"]
    assert properties["activation"]["const"] == "relu"
    assert json.loads(schema_text()) == json_schema()
