"""What is wrong with a specification, in sentences: the place, what was found, what is allowed, an example."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from srunbook._yaml import shown
from srunbook.cluster._errors import SpecificationError

MAX_PROBLEMS = 20
"""Problems that are reported at once."""

OTHER_WORDS = {
    "number": "count",
    "num_nodes": "count",
    "mem": "memory",
    "real_memory": "memory",
    "gpus": "gres",
    "maxtime": "max_time",
    "time": "max_time",
    "time_limit": "max_time",
    "gracetime": "grace_time",
    "prioritytier": "priority_tier",
    "preempt_send_user_signal": "preemption",
    "groups": "nodes",
    "env": "environments",
    "binds": "mounts",
    "volumes": "mounts",
}
"""Words that Slurm or other tools use, and the key that is meant."""


@dataclass(frozen=True)
class Places:
    """Where values come from.

    Args:
        origin: Returns the place of the value with a path, such as `cluster.yaml:3`.
    """

    origin: Callable[[tuple[Any, ...]], str]


def keys(model: type[BaseModel]) -> dict[str, Any]:
    """Return the fields of a model by the key that a file has for them."""
    return {info.alias or name: info for name, info in model.model_fields.items()}


def model_at(model: type[BaseModel], path: tuple[Any, ...]) -> type[BaseModel]:
    """Return the model to which the last key of a path belongs.

    Args:
        model: The model of the whole.
        path: Keys without marks of unions, as in `("partitions", "gpu", "max_time")`.
    """
    for key in path[:-1]:
        info = keys(model).get(key)
        model = next(_models(info.annotation), model) if info else model
    return model


def _models(annotation: Any) -> Any:
    """Yield the models in an annotation, such as that in `dict[str, Partition]`."""
    if isinstance(annotation, type) and get_origin(annotation) is None and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def sentences(model: type[BaseModel], error: ValidationError, places: Places | None) -> list[str]:
    """Say what is wrong with each value, one sentence or two each.

    Args:
        model: The model that was to be made.
        error: What pydantic found.
        places: Where the values come from, if that is known.
    """
    found: dict[tuple[Any, ...], str] = {}
    for item in error.errors(include_url=False):
        path = _plain(item["loc"])
        where = places.origin(path) if places else ""
        text = _sentence(model, path, item)
        found.setdefault(path, f"{where}: {text}" if where else text)
    told = list(found.values())
    more = len(told) - MAX_PROBLEMS
    return [*told[:MAX_PROBLEMS], f"and {more} more. Fix these first"] if more > 0 else told


def _plain(place: tuple[Any, ...]) -> tuple[Any, ...]:
    """Leave out of the place of an error what pydantic adds for keys, and for the two forms of `nodes`."""
    return tuple(part for part in place[:1] + place[1 + (place[0] == "nodes") :] if part != "[key]") if place else ()


def _sentence(model: type[BaseModel], path: tuple[Any, ...], item: Mapping[str, Any]) -> str:
    found = shown(item["input"])
    if not path:
        return f"a configuration is keys and values, as in nodes: 4; found {found}"
    names = [part for part in path if not isinstance(part, int)]
    dotted = ".".join(map(str, names)) + "".join(f"[{part}]" for part in path if isinstance(part, int))
    if item["type"] == "extra_forbidden":
        return unknown(path[-1], keys(model_at(model, path)))
    if item["type"] == "value_error":
        return str(item["ctx"]["error"])
    key, info = _field(model, names)
    example = f"Example: {key}: {json.dumps((info.examples or [''])[0], ensure_ascii=False)}"
    if item["type"] == "missing":
        return f"{dotted} is missing. {info.description} {example}"
    if item["loc"][-1] == "[key]":
        return f"{found} is no name for one of {key}: a name matches {item['ctx']['pattern']}. {example}"
    meant = get_close_matches(item["input"][:80], _choices(item), n=1) if isinstance(item["input"], str) else []
    guess = f"Did you mean {meant[0]}? " if meant else ""
    number = isinstance(item["input"], (int, float)) and not isinstance(item["input"], bool)
    quotes = "Write it in quotes. " if item["type"] == "string_type" and number else ""
    return f"{dotted} is {found}. {info.description} {guess}{quotes}{example}"


def _choices(item: Mapping[str, Any]) -> list[str]:
    """Return the words that pydantic expected, if it expected some."""
    return [part.strip(" '") for part in str(item.get("ctx", {}).get("expected", "")).replace(" or ", ",").split(",")]


def _field(model: type[BaseModel], path: list[Any]) -> tuple[str, Any]:
    """Return the key and the field of the last model on a path."""
    found: tuple[str, Any] = ("", None)
    for end in range(1, len(path) + 1):
        info = keys(model_at(model, tuple(path[:end]))).get(path[end - 1])
        found = (path[end - 1], info) if info else found
    return found


def unknown(key: Any, known: Mapping[str, Any]) -> str:
    """Say that there is no such key, and which one may be meant.

    >>> unknown("max-time", {"max_time": 0, "nodes": 0})
    "unknown key 'max-time'; did you mean max_time?"
    """
    plain = str(key)[:80].lower().replace("-", "_").strip("_ ")
    others = {word: meant for word, meant in OTHER_WORDS.items() if meant in known}
    found = get_close_matches(plain, [*known, *others], n=1, cutoff=0.6)
    meant = others.get(found[0], found[0]) if found else None
    return f"unknown key {shown(key)}; " + (f"did you mean {meant}?" if meant else f"the keys are {', '.join(known)}")


def raise_problems(problems: list[tuple[tuple[Any, ...], str]], places: Places | None) -> None:
    """Raise an error that has a sentence for each problem, unless there is none.

    Args:
        problems: Path of the value that each is about, and the sentence.
        places: Where the values come from, if that is known.

    Raises:
        SpecificationError: There are some.
    """
    told = [f"{places.origin(path)}: {text}" if places else text for path, text in problems[:MAX_PROBLEMS]]
    if told:
        raise SpecificationError("\n".join(told))
