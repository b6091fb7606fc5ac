"""The JSON Schema of a cluster's configuration."""

from __future__ import annotations

from typing import Any

from srunbook.cluster._specification import Specification


def schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a configuration file, for editors.

    It knows what each field may be, and nothing of what excludes each other.
    """
    made = Specification.model_json_schema(by_alias=True)
    made["description"] = "A file for srunbook cluster up --config."
    for model in [made, *made.get("$defs", {}).values()]:
        for field in model.get("properties", {}).values():
            field.pop("title", None)
            if "patternProperties" in field:
                field["additionalProperties"] = False
    return made
