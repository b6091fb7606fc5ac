"""Lay values from several places over each other, the later over the earlier, and make a specification of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from srunbook import sites
from srunbook._yaml import Document, MalformedError, origin_of, parse_document, read_document, shown
from srunbook.generate._specification import CONTROL, PROFILES, JobSpecification, choices, kinds

PAIRS = (
    ("memory_per_cpu", "memory_per_node"),
    ("virtual_environment", "container_image"),
    ("virtual_environment", "conda_environment"),
    ("conda_environment", "container_image"),
)
"""Fields of which a job has only one: a layer that sets it takes back the other from the layers below."""

OTHER_WORDS = {
    word: name
    for name, words in {
        "arguments": "args",
        "conda_environment": "conda",
        "container_image": "image",
        "coordinator_port": "port",
        "cpus_per_node": "cpus cpus_per_task",
        "env_vars": "env environment",
        "gpus_per_node": "gpus gres",
        "memory_per_cpu": "mem_per_cpu",
        "memory_per_node": "mem",
        "modules_to_load": "modules",
        "name": "job_name",
        "network_interface": "interface",
        "output": "error log",
        "processes_per_node": "ntasks ntasks_per_node tasks_per_node",
        "time_limit": "time",
        "virtual_environment": "venv",
    }.items()
    for word in words.split()
}
"""Words that Slurm or other tools use, and the field that is meant."""


class JobError(ValueError):
    """A job specification is wrong; each problem names the place, the value and what is allowed.

    Args:
        problems: One sentence or two for each.
    """

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


@dataclass(frozen=True)
class Layer:
    """Values from one place.

    Args:
        place: The place, such as `profile medium` or the path of a file.
        values: Values by field; None takes back what a layer below has set.
        lines: For a file, the line of each key: by its path, as in `("env_vars", "NAME")`.
    """

    place: str
    values: Mapping[Any, Any]
    lines: Mapping[tuple[Any, ...], int] = field(default_factory=dict)

    def origin(self, *path: Any) -> str:
        """Return the place of a value, with its line if it has one."""
        return origin_of(path, self.place, self.lines)


@dataclass(frozen=True)
class ResolvedJob:
    """A specification, and where each of its values came from.

    Args:
        specification: The specification.
        origins: Place of each value, by its path: `("nodes",)`, `("env_vars", "NAME")`.
    """

    specification: JobSpecification
    origins: Mapping[tuple[Any, ...], str]

    def origin(self, *path: Any) -> str:
        """Return the place of a value; `default` if no layer sets it."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.origins:
                return self.origins[path[:end]]
        return "default"


class Merged:
    """Layers laid over each other."""

    def __init__(self, layers: Iterable[Layer]) -> None:
        self.values: dict[Any, Any] = {}
        self.origins: dict[tuple[Any, ...], str] = {}
        for layer in layers:
            self.add(layer)

    def add(self, layer: Layer) -> None:
        """Lay a layer over those before it."""
        for one, other in (*PAIRS, *(pair[::-1] for pair in PAIRS)):
            if layer.values.get(one) is not None and layer.values.get(other) is None:
                self.remove(other)
        for key, value in layer.values.items():
            if not known(key):
                continue
            if key == "env_vars" and isinstance(value, dict):
                before = self.values.get(key)
                self.values[key] = {**(before if isinstance(before, dict) else {}), **value}
                for name in value:
                    self.origins[(key, name)] = layer.origin(key, name)
            else:
                self.remove(key)
                if value is not None:
                    self.values[key] = value
            self.origins[(key,)] = layer.origin(key)
            if isinstance(value, list):
                self.origins.update({(key, place): layer.origin(key, place) for place in range(len(value))})

    def remove(self, key: Any) -> None:
        """Forget a value."""
        self.values.pop(key, None)
        for path in [path for path in self.origins if path[0] == key]:
            del self.origins[path]


def specify(*layers: Layer) -> ResolvedJob:
    """Make a specification from layers; each wins over those before it.

    The profile and the cluster that the layers name lie below all of them: the profile first, then the cluster.

    Args:
        layers: The values.

    Returns:
        The specification, with the origin of each value.

    Raises:
        JobError: A key is unknown, a value is not allowed or missing, or two contradict each other.

    >>> job = specify(Layer("here", {"profile": "small", "script": "train.py", "nodes": 3}))
    >>> job.specification.nodes, job.origin("nodes"), job.origin("cpus_per_node")
    (3, 'here', 'profile small')
    """
    named = Merged(layers).values
    profile, site = named.get("profile"), named.get("cluster")
    bases = []
    if isinstance(profile, str) and profile in PROFILES:
        bases.append(Layer(f"profile {profile}", PROFILES[profile]))
    if isinstance(site, str) and site in sites.names():
        bases.append(Layer(f"cluster {site}", sites.read(site)))
    merged = Merged([*bases, *layers])
    wrong = [problem_with_key(key, layer.origin(key)) for layer in layers for key in layer.values if not known(key)]
    try:
        specification = JobSpecification.model_validate(merged.values)
    except ValidationError as error:
        wrong += problems(error, merged)
    if wrong:
        raise JobError(wrong)
    return ResolvedJob(specification, merged.origins)


def known(key: Any) -> bool:
    """Tell whether there is such a field."""
    return isinstance(key, str) and key in JobSpecification.model_fields


def nearest(key: str) -> str | None:
    """Return the field that somebody may have meant.

    >>> nearest("node"), nearest("mem-per-cpu"), nearest("xyz")
    ('nodes', 'memory_per_cpu', None)
    """
    plain = key[:80].lower().replace("-", "_").strip("_ ")
    found = get_close_matches(plain, [*JobSpecification.model_fields, *OTHER_WORDS], n=1, cutoff=0.6)
    return OTHER_WORDS.get(found[0], found[0]) if found else None


def problem_with_key(key: Any, place: str) -> str:
    """Say that there is no such field, and which one may be meant."""
    meant = nearest(key) if isinstance(key, str) else None
    advice = f"did you mean {meant}?" if meant else f"the keys are {', '.join(JobSpecification.model_fields)}"
    return f"{place}: unknown key {shown(key)}; {advice}"


def problems(error: ValidationError, merged: Merged) -> list[str]:
    """Say for each wrong field what was found and what is allowed."""
    found: dict[tuple[Any, ...], str] = {}
    for item in error.errors(include_url=False, include_context=True):
        if item["type"] == "contradiction":
            key = item["ctx"]["key"]
            found[(key,)] = contradiction(key, item["ctx"]["text"], merged)
            continue
        path = tuple(part for part in item["loc"] if part != "[key]")[:2]
        if item["type"] == "taken":
            path = (*path, item["ctx"]["name"])
        if len(path) > 1 and path[0] not in ("env_vars", "arguments", "modules_to_load"):
            path = path[:1]  # a member of a union
        found.setdefault(path, problem(path, item, merged))
    return list(found.values())


def contradiction(key: str, text: str, merged: Merged) -> str:
    """Say which value contradicts which."""
    value = merged.values.get(key)
    found = f"{key} {shown(value)}" if value is not None else key
    place = merged.origins.get((key,))
    return f"{place}: {found} {text}" if place else f"{found} {text}"


def problem(path: tuple[Any, ...], item: Any, merged: Merged) -> str:
    """Say what is wrong with one value."""
    key = path[0]
    info = JobSpecification.model_fields[key]
    if item["type"] == "missing":
        if key == "script":
            return "no program is named: add --script, as in --script train.py, or script: train.py in the file"
        return f"{key} is missing: choose a --profile, or add {example(key, info)}"
    place = merged.origins.get(path) or merged.origins.get((key,)) or "default"
    if item["type"] == "taken":
        return f"{place}: the variable {path[1]} cannot be set in env_vars: {item['ctx']['reason']}"
    name = key if len(path) == 1 else f"{key}[{path[1]}]" if isinstance(path[1], int) else f"{key}.{path[1]}"
    value = item["input"]
    if item["loc"][-1] == "[key]":
        return (
            f"{place}: {shown(value)} in {key} is not a name of a variable. A name has letters, digits and _, "
            "and does not begin with a digit, as in OMP_NUM_THREADS"
        )
    return f"{place}: {name} is {shown(value)}. {info.description} {hint(key, value)}Example: {example(key, info)}"


def hint(key: str, value: Any) -> str:
    """Guess what led to a wrong value."""
    if isinstance(value, str):
        if value != value.strip() or re.search(f"[{CONTROL}]", value):
            return "It has a blank at an end, the end of a line or another control character. "
        meant = get_close_matches(value[:80], choices(key), n=1)
        return f"Did you mean {meant[0]}? " if meant else ""
    text_is_meant = not choices(key) and kinds(key).isdisjoint({int, bool})
    return "Put it in quotes. " if text_is_meant and not isinstance(value, (list, dict)) else ""


def example(key: str, info: FieldInfo) -> str:
    """Write a line of YAML that is right.

    >>> example("modules_to_load", JobSpecification.model_fields["modules_to_load"])
    'modules_to_load: ["python/3.11", "gcc/11.2.0"]'
    """
    value = (info.examples or [""])[0]
    return f"{key}: {json.dumps(value, ensure_ascii=False)}"


def read_config(path: Path) -> Layer:
    """Read a configuration file.

    Args:
        path: A file in YAML 1.2, in which `12:00:00` is a text.

    Returns:
        Its values, with the line of each key.

    Raises:
        JobError: The file cannot be read, is a pipe or a device, is larger than 1 MiB, or does not hold a mapping.
    """
    return _layer(read_document, path)


def parse_config(text: str, place: str) -> Layer:
    r"""Read the text of a configuration file.

    Args:
        text: YAML 1.2.
        place: What messages call it.

    Raises:
        JobError: It is not YAML, or not a mapping.

    >>> parse_config("nodes: 4\ntime_limit: 12:00:00\n", "a.yaml").values
    {'nodes': 4, 'time_limit': '12:00:00'}
    """
    return _layer(parse_document, text, place)


def _layer(read: Callable[..., Document], *arguments: Any) -> Layer:
    try:
        document = read(*arguments)
    except MalformedError as error:
        raise JobError([str(error)]) from None
    return Layer(document.place, document.values, document.lines)


def settings(options: Iterable[str]) -> list[Layer]:
    """Read options `--set KEY=VALUE`.

    A field that takes a number or true and false gets one; a list is written with commas; one environment variable is
    `env_vars.NAME=VALUE`; an empty value takes back what a profile, a cluster or a file says.

    Args:
        options: What follows `--set`, each time it is given.

    Raises:
        JobError: One has no `=`, or names no field.

    >>> [layer.values for layer in settings(["nodes=4", "env_vars.A=b=c", "partition="])]
    [{'nodes': 4}, {'env_vars': {'A': 'b=c'}}, {'partition': None}]
    """
    layers = []
    for option in options:
        key, sign, text = option.partition("=")
        place = f"--set {option}" if option.isprintable() and len(option) <= 80 else f"--set {key[:40]!r}"
        if not sign:
            raise JobError([f"{place}: no '=' in it. Write a key and a value, as in --set nodes=4"])
        field, dot, name = key.partition(".")
        if not known(field):
            raise JobError([problem_with_key(field, place)])
        if dot and field != "env_vars":
            raise JobError([f"{place}: {field} has no parts. Write --set {field}=VALUE"])
        if field == "env_vars":
            if not name:
                raise JobError([f"{place}: which variable? Write --set env_vars.NAME=VALUE"])
            layers.append(Layer(place, {field: {name: text}}))
            continue
        layers.append(Layer(place, {field: value_of(field, text) if text else None}))
    return layers


def value_of(field: str, text: str) -> Any:
    """Read the text of an option as the kind of value that its field takes; leave it a text if that fails."""
    allowed = kinds(field)
    if bool in allowed and text in ("true", "false"):
        return text == "true"
    if int in allowed and text.isascii() and text.isdigit() and len(text) < 10:
        return int(text)
    if list in allowed:
        return text.split(",")
    return text
