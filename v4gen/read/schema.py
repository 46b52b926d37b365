"""The JSON schema of a spec, for editors: `specs/v4gen-1.schema.json` is its text."""

from __future__ import annotations

import json
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from v4gen.read.spec import Spec

SCHEMA_ID = "v4gen/1"
#: The name that the schema's file has beside specs.
SCHEMA_FILE = "v4gen-1.schema.json"

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_DESCRIPTION = "Which lightning indexer a model has, and what to generate for it."


class _Untitled(GenerateJsonSchema):
    """Without a title on every field, which would only repeat its key."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def json_schema() -> dict[str, Any]:
    """The schema (draft 2020-12) that the `Spec` model implies: every key with its description, range and default.

    What holds between keys is not in it, nor how an integer is spelt: reading the spec is what decides.
    """
    schema = Spec.model_json_schema(schema_generator=_Untitled)
    return {"$schema": _DIALECT, **schema, "title": "v4gen spec", "description": _DESCRIPTION}


def schema_text() -> str:
    """The schema as the text of its file."""
    return json.dumps(json_schema(), indent=2) + "\n"
