"""Lay values from several places over each other, the later over the earlier, and make a specification of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from srunbook import sites
from srunbook._yaml import Layer, MalformedError, read_document, shown
from srunbook.generate.specification import CONTROL, EXCLUSIVE, PROFILES, JobSpecification, choices, forms


class JobError(ValueError):
    """A job specification is wrong; for each problem, the message gives the place, the value and what is allowed."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


@dataclass(frozen=True)
class ResolvedJob:
    """A specification, and the place of each value by its path, such as `("nodes",)` or `("env_vars", "NAME")`."""

    specification: JobSpecification
    origins: Mapping[tuple[Any, ...], str]

    def origin(self, *path: Any) -> str:
        """Return the place of a value; `default` if no layer sets it."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.origins:
                return self.origins[path[:end]]
        return "default"


def dotted(path: Iterable[Any]) -> str:
    """Write the path of a value.

    >>> dotted(("modules_to_load", 0)), dotted(("env_vars", "NAME"))
    ('modules_to_load[0]', 'env_vars.NAME')
    """
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def _merge(layers: Iterable[Layer]) -> tuple[dict[Any, Any], dict[tuple[Any, ...], str]]:
    """Lay layers over each other; return the values, and the place of each by its path."""
    values: dict[Any, Any] = {}
    origins: dict[tuple[Any, ...], str] = {}
    for layer in layers:
        for group in EXCLUSIVE:
            if any(layer.values.get(name) is not None for name in group):
                for name in group:
                    _forget(name, values, origins)
        for key, value in layer.values.items():
            if not known(key):
                continue
            if isinstance(value, dict) and isinstance(values.get(key, {}), dict):
                values[key] = {**values.get(key, {}), **value}
            else:
                _forget(key, values, origins)
                if value is not None:
                    values[key] = value
            origins[(key,)] = layer.origin(key)
            if isinstance(value, (dict, list)):
                parts = value if isinstance(value, dict) else range(len(value))
                origins.update({(key, part): layer.origin(key, part) for part in parts})
    return values, origins


def _forget(key: Any, values: dict[Any, Any], origins: dict[tuple[Any, ...], str]) -> None:
    values.pop(key, None)
    for path in [path for path in origins if path[0] == key]:
        del origins[path]


def specify(*layers: Layer) -> ResolvedJob:
    """Make a specification from layers; each layer overrides the ones before it.

    The layers override the profile and the cluster that they choose; the cluster overrides the profile.

    Raises:
        JobError: A key is unknown, a value is not allowed or missing, or two values contradict each other.

    >>> job = specify(Layer("here", {"profile": "small", "script": "train.py", "nodes": 3}))
    >>> job.specification.nodes, job.origin("nodes"), job.origin("cpus_per_node")
    (3, 'here', 'profile small')
    """
    chosen, _ = _merge(layers)
    bases = [Layer(f"profile {name}", PROFILES[name]) for name in PROFILES if name == chosen.get("profile")]
    bases += [Layer(f"cluster {name}", sites.read(name)) for name in sites.names() if name == chosen.get("cluster")]
    values, origins = _merge([*bases, *layers])
    problems = [_unknown(key, layer.origin(key)) for layer in layers for key in layer.values if not known(key)]
    try:
        specification = JobSpecification.model_validate(values)
    except ValidationError as error:
        by_path: dict[tuple[Any, ...], str] = {}
        for item in error.errors(include_url=False):
            path = _path(item)
            by_path.setdefault(path, _problem(path, item, origins))
        problems += by_path.values()
    if problems:
        raise JobError(problems)
    return ResolvedJob(specification, origins)


def known(key: Any) -> bool:
    """Return whether there is such a field."""
    return isinstance(key, str) and key in JobSpecification.model_fields


def _unknown(key: Any, place: str) -> str:
    """Say that there is no such field, and which one may be meant."""
    close = get_close_matches(str(key)[:80].lower().replace("-", "_"), JobSpecification.model_fields, n=1, cutoff=0.5)
    meant = f"did you mean {close[0]}?" if close else ""
    keys = f"the keys are {', '.join(JobSpecification.model_fields)}"
    return f"{place}: unknown key {shown(key)}; put it under sbatch: if sbatch has such an option; {meant or keys}"


def _path(item: Any) -> tuple[Any, ...]:
    """Return the path of the value that an error of pydantic is about."""
    if item["type"] == "contradiction":
        return tuple(item["ctx"]["path"])
    path = tuple(part for part in item["loc"] if part != "[key]")
    return path[: 1 if _types(path[0]).isdisjoint({"array", "object"}) else 2]  # what follows names a form of the field


def _problem(path: tuple[Any, ...], item: Any, origins: Mapping[tuple[Any, ...], str]) -> str:
    """Say of one value where it is, what it is and what is allowed."""
    key, value = path[0], item["input"]
    if item["type"] == "missing":
        if key == "script":
            return "no program is named: add --script, as in --script train.py, or script: train.py in the file"
        return f"{key} is missing: choose a --profile, or add {example(key)}"
    if item["type"] == "contradiction":
        text = item["msg"]
    else:
        subject = (
            f"{shown(value)} in {key} is not a name" if "[key]" in item["loc"] else f"{dotted(path)} is {shown(value)}"
        )
        description = JobSpecification.model_fields[key].description
        text = f"{subject}. {description} {_guess(key, value)}Example: {example(key)}"
    place = origins.get(path) or origins.get((key,))
    return f"{place}: {text}" if place else text


def _guess(key: str, value: Any) -> str:
    """Guess what led to a wrong value."""
    if isinstance(value, str):
        if value != value.strip() or re.search(f"[{CONTROL}]", value):
            return "It has a blank at an end, the end of a line or another control character. "
        meant = get_close_matches(value[:80], choices(key), n=1)
        return f"Did you mean {meant[0]}? " if meant else ""
    text_is_meant = not choices(key) and _types(key).isdisjoint({"integer", "boolean"})
    return "Put it in quotes. " if text_is_meant and not isinstance(value, (list, dict)) else ""


def _types(key: str) -> set[str]:
    return {form["type"] for form in forms(key)}


def example(key: str) -> str:
    """Write a line of YAML that is right.

    >>> example("modules_to_load")
    'modules_to_load: ["python/3.11", "gcc/11.2.0"]'
    """
    value = (JobSpecification.model_fields[key].examples or [""])[0]
    return f"{key}: {json.dumps(value, ensure_ascii=False)}"


def read_config(path: Path) -> Layer:
    """Read a configuration file in YAML 1.2, in which `12:00:00` is text.

    Raises:
        JobError: The file cannot be read, or does not contain a mapping.
    """
    try:
        return read_document(path)
    except MalformedError as error:
        raise JobError([str(error)]) from None


def settings(options: Iterable[str]) -> list[Layer]:
    """Read options `--set KEY=VALUE`.

    A value becomes a number, true or false if the field takes one. Write a list with commas, or in brackets as in YAML,
    an environment variable as `env_vars.NAME=VALUE`, and an sbatch option as `sbatch.NAME=VALUE`. An empty value
    removes what a profile, a cluster or a file sets.

    Raises:
        JobError: An option has no `=`, or its key is not a field.

    >>> [layer.values for layer in settings(["nodes=4", "env_vars.A=b=c", "partition=", "setup=[module use /a, b]"])]
    [{'nodes': 4}, {'env_vars': {'A': 'b=c'}}, {'partition': None}, {'setup': ['module use /a', 'b']}]
    """
    return [_setting(option) for option in options]


def _setting(option: str) -> Layer:
    key, sign, text = option.partition("=")
    place = f"--set {option}" if option.isprintable() and len(option) <= 80 else f"--set {key[:40]!r}"
    name, dot, part = key.partition(".")
    if not sign:
        raise JobError([f"{place}: no '=' in it. Write a key and a value, as in --set nodes=4"])
    if not known(name):
        raise JobError([_unknown(name, place)])
    if "object" in _types(name):
        if not part:
            raise JobError([f"{place}: which of {name}? Write --set {name}.NAME=VALUE"])
        flags = {"true": True, "false": False} if name == "sbatch" else {}
        return Layer(place, {name: {part: flags.get(text, text)}})
    if dot:
        raise JobError([f"{place}: {name} has no parts. Write --set {name}=VALUE"])
    return Layer(place, {name: _value(name, text) if text else None})


def _value(key: str, text: str) -> Any:
    """Read the text of an option as the kind of value that its field takes; leave it a text if that fails."""
    kinds = {"boolean": bool, "integer": int, "array": list}
    wanted = tuple(kinds[name] for name in _types(key) & kinds.keys())
    with suppress(YAMLError, ValueError):
        value = YAML(typ="safe", pure=True).load(text)
        if isinstance(value, wanted):
            return value
    return text.split(",") if list in wanted else text
