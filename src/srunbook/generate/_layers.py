"""Lay values from several places over each other, the later over the earlier, and make a specification of them."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from srunbook import sites
from srunbook._yaml import origin_of, shown
from srunbook.generate._errors import JobError
from srunbook.generate._patterns import UNSEEN
from srunbook.generate._profiles import PROFILES
from srunbook.generate._schema import choices, kinds
from srunbook.generate._specification import JobSpecification

PAIRS = (
    ("memory_per_cpu", "memory_per_node"),
    ("virtual_environment", "container_image"),
    ("virtual_environment", "conda_environment"),
    ("conda_environment", "container_image"),
)
"""Fields of which a job has only one: a layer that sets it takes back the other from the layers below."""

OTHER_WORDS = {
    "args": "arguments",
    "conda": "conda_environment",
    "cpus": "cpus_per_node",
    "cpus_per_task": "cpus_per_node",
    "env": "env_vars",
    "environment": "env_vars",
    "error": "output",
    "gpus": "gpus_per_node",
    "gres": "gpus_per_node",
    "image": "container_image",
    "interface": "network_interface",
    "job_name": "name",
    "log": "output",
    "mem": "memory_per_node",
    "mem_per_cpu": "memory_per_cpu",
    "modules": "modules_to_load",
    "ntasks": "processes_per_node",
    "ntasks_per_node": "processes_per_node",
    "port": "coordinator_port",
    "tasks_per_node": "processes_per_node",
    "time": "time_limit",
    "venv": "virtual_environment",
}
"""Words that Slurm or other tools use, and the field that is meant."""

MAX_PROBLEMS = 20
"""Problems that are reported at once."""


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
    unknown = [(key, layer) for layer in layers for key in layer.values if not known(key)]
    wrong = [problem_with_key(key, layer.origin(key)) for key, layer in unknown[:MAX_PROBLEMS]]
    try:
        specification = JobSpecification.model_validate(merged.values)
    except ValidationError as error:
        wrong += problems(error, merged)
    if wrong:
        more = max(len(wrong), len(unknown)) - MAX_PROBLEMS
        told = sorted(wrong, key=line_of)[:MAX_PROBLEMS]
        raise JobError([*told, f"and {more} more. Fix these first"] if more > 0 else told)
    return ResolvedJob(specification, merged.origins)


def line_of(text: str) -> int:
    """Return the line of the file that a problem is about; 0 if it names none."""
    found = re.match(r"[^\n]*?:(\d+): ", text)
    return int(found[1]) if found else 0


def known(key: Any) -> bool:
    """Tell whether there is such a field."""
    return isinstance(key, str) and key in JobSpecification.model_fields


def nearest(key: str) -> str | None:
    """Return the field that somebody may have meant.

    >>> nearest("node"), nearest("mem-per-cpu"), nearest("xyz")
    ('nodes', 'memory_per_cpu', None)
    """
    plain = unicodedata.normalize("NFKC", key[:80]).lower().replace("-", "_").strip("_ ")
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
    return (
        f"{place}: {name} is {shown(value)}. {info.description} {hint(key, value, place)}Example: {example(key, info)}"
    )


def hint(key: str, value: Any, place: str) -> str:
    """Guess what led to a wrong value."""
    if isinstance(value, str) and any(ord(letter) < 32 or 0x7F <= ord(letter) < 0xA0 for letter in value):
        return "It contains a control character, such as the end of a line. "
    if key == "script" and isinstance(value, str) and value.startswith("-"):
        return f"Python would take it for an option: write {shown(f'./{value}')}. "
    if key == "script" and isinstance(value, str) and value.startswith("~"):
        return "The ~ is not expanded here: write the path from the folder in which you submit, or the whole path. "
    if isinstance(value, str) and re.search(rf"^[{UNSEEN}]|[{UNSEEN}]$", value):
        return "It begins or ends with a space or an invisible character. "
    meant = get_close_matches(value[:80], choices(key), n=1) if isinstance(value, str) else []
    if meant:
        return f"Did you mean {meant[0]}? "
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if key == "time_limit" and number:
        return "A number could be seconds or minutes: write it in quotes. "
    if key in ("env_vars", "arguments") and not isinstance(value, (str, list, dict)):
        return "Write it in quotes. "
    if isinstance(value, str) and int in kinds(key) and value.strip().isdigit() and not place.startswith("--"):
        return "It is a text: write it without quotes. "
    return ""


def example(key: str, info: FieldInfo) -> str:
    """Write a line of YAML that is right.

    >>> example("modules_to_load", JobSpecification.model_fields["modules_to_load"])
    'modules_to_load: ["python/3.11", "gcc/11.2.0"]'
    """
    value = (info.examples or [""])[0]
    return f"{key}: {json.dumps(value, ensure_ascii=False)}"
