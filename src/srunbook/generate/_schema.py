"""What the fields of a job take: their types, their choices, and the JSON Schema of a configuration file."""

from __future__ import annotations

from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from srunbook.generate._specification import JobSpecification


def options(annotation: Any) -> list[Any]:
    """List the alternatives of an annotation, without what only constrains them."""
    if get_origin(annotation) is Annotated:
        return options(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [kind for option in get_args(annotation) for kind in options(option)]
    return [annotation]


def kinds(key: str) -> set[Any]:
    """Return the plain types that a field takes.

    >>> sorted(kind.__name__ for kind in kinds("gpus_per_node"))
    ['NoneType', 'int', 'str']
    """
    return {get_origin(kind) or kind for kind in options(JobSpecification.model_fields[key].annotation)}


def choices(key: str) -> list[str]:
    """List the words of which a field takes one; none if it takes any.

    >>> choices("platform"), choices("name")
    (['cpu', 'gpu'], [])
    """
    found = options(JobSpecification.model_fields[key].annotation)
    return [word for kind in found if get_origin(kind) is Literal for word in get_args(kind)]


def schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a configuration file, for editors.

    It requires nothing, because a profile, a cluster or an option may set what the file leaves out, and it does not
    know which fields exclude each other.
    """
    made = JobSpecification.model_json_schema()
    made.pop("required")
    made["description"] = "Fields of a file for srunbook generate --config."
    for field in made["properties"].values():
        field.pop("title", None)
        if "patternProperties" in field:
            field["additionalProperties"] = False
    return made
