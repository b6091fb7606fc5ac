"""All that another engine needs to accept the same jobs, refuse the same values, and render the same scripts."""

from __future__ import annotations

from typing import Any

from srunbook import sites
from srunbook._connections import OTHER_FILES
from srunbook.generate._connections import FILES, WARNING
from srunbook.generate._contradictions import CONTRADICTIONS
from srunbook.generate._layers import PAIRS, example
from srunbook.generate._quoting import KEYWORDS
from srunbook.generate._render import COMMENT_COLUMN, PLAIN_FIELDS, source
from srunbook.generate._specification import CONTROL, LINKED, PROFILES, TAKEN, JobSpecification, schema


def rules() -> dict[str, Any]:
    """Return the template, the fields, the profiles, the known clusters and all limits, as JSON can hold them.

    The page that writes job scripts in the browser works from this. A rule about several fields has a name and a
    text; when it is broken, each engine knows by itself.
    """
    return {
        "template": source(),
        "fields": {name: _field(name, made) for name, made in schema()["properties"].items()},
        "profiles": PROFILES,
        "clusters": {name: dict(sites.read(name)) for name in sites.names()},
        "pairs": PAIRS,
        "contradictions": [{"name": rule.name, "field": rule.field, "text": rule.text} for rule in CONTRADICTIONS],
        "taken": TAKEN,
        "warning": WARNING,
        "keywords": sorted(KEYWORDS),
        "plain_fields": PLAIN_FIELDS,
        "control": CONTROL,
        "linked": LINKED,
        "limits": {"comment_column": COMMENT_COLUMN, "files": FILES, "other_files": OTHER_FILES},
    }


def _field(name: str, made: dict[str, Any]) -> dict[str, Any]:
    """Describe a field: its schema, a line of YAML that is right, and whether it has to be there."""
    info = JobSpecification.model_fields[name]
    return {**made, "example": example(name, info), "required": info.is_required()}
