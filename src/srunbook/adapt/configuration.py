"""The rules that say which options and commands are a site's, and what a configuration says of a site.

The rules are data: the program of the site's pages reads the same file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from srunbook import generate, sites
from srunbook.generate import Layer, ResolvedJob
from srunbook.script import ScriptError


@cache
def rules() -> dict[str, Any]:
    """Read the rules that ship with the package."""
    read: dict[str, Any] = json.loads(files("srunbook.adapt").joinpath("rules.json").read_text(encoding="utf-8"))
    return read


@cache
def pattern(text: str) -> re.Pattern[str]:
    """Compile a pattern of the rules, whose groups are named as in JavaScript."""
    return re.compile(re.sub(r"\(\?<(?=[a-z])", "(?P<", text), re.ASCII)


def refusal(line: int, name: str, **values: object) -> ScriptError:
    """Return the error for a script that is not understood, in the words of the rules."""
    return ScriptError(line, rules()["refusals"][name].format(**values))


STAND_IN = "what a job needs besides"
"""Place of the values that stand in for those of a job, so that a configuration is judged as a whole."""


REMOVABLE = frozenset({*rules()["directives"], "gpus_per_node", "modules_to_load"})
"""Fields for which a script may ask for nothing: null takes away what it asks for."""


@dataclass(frozen=True)
class Site:
    """What scripts are adapted to.

    Args:
        values: Value by field, of `rules()["fields"]`; None for what a script must not ask for.
        origins: Place of each value, such as a file and its line.
        platform: "cpu" where the configuration says that the site, or the job, has no GPUs.
    """

    values: Mapping[str, Any]
    origins: Mapping[str, str]
    platform: str | None = None

    @property
    def gpus(self) -> int | None:
        """GPUs of a node; None where the configuration says nothing."""
        found = self.values.get("gpus_per_node")
        return None if found is None else int(str(found).rpartition(":")[2])

    @property
    def kind(self) -> str | None:
        """Type of the GPUs; None without."""
        return str(self.values.get("gpus_per_node") or "").rpartition(":")[0] or None


def site(*layers: Layer) -> Site:
    """Take from a configuration what it says of a site, judged by the rules of `srunbook generate`.

    A `cluster` that it names lies below it. A `profile` is a size and says nothing of a site. A field that is null in
    the last layer that has it takes that option away from a script.

    Args:
        layers: The values, as for `srunbook.generate.specify`; what only a job needs may be missing.

    Raises:
        JobError: A key is unknown, a value is not allowed, or two contradict each other.
    """
    job = generate.specify(Layer(STAND_IN, _stand_ins(layers)), *layers)
    fields = [name for name in rules()["fields"] if _says(job, name)]
    values = {name: getattr(job.specification, name) for name in fields}
    origins = {name: job.origin(name) for name in fields}
    for layer in layers:
        for name in rules()["fields"]:
            if name in REMOVABLE and name in layer.values and layer.values[name] is None and name not in values:
                values[name], origins[name] = None, layer.origin(name)
    return Site(values, origins, job.specification.platform if _says(job, "platform") else None)


def _says(job: ResolvedJob, name: str) -> bool:
    place = job.origin(name)
    return place not in ("default", STAND_IN) and not place.startswith("profile ")


def _stand_ins(layers: tuple[Layer, ...]) -> dict[str, Any]:
    """Give a job that says nothing of its size the smallest one that its other values allow."""
    named: dict[Any, Any] = {}
    for layer in layers:
        named |= {key: value for key, value in layer.values.items() if value is not None}
    made: dict[str, Any] = {"script": "program.py"}
    if "profile" in named:
        return made
    made["nodes"] = 1
    cluster = sites.read(named["cluster"]) if named.get("cluster") in sites.names() else {}
    if "cpus_per_node" not in cluster:
        gpus = str(named.get("gpus_per_node") or cluster.get("gpus_per_node") or 1)
        processes = named.get("processes_per_node")
        count = str(processes) if isinstance(processes, int) else gpus.rpartition(":")[2]
        made["cpus_per_node"] = max(1, min(1024, int(count))) if re.fullmatch("[0-9]{1,4}", count) else 1
    return made
