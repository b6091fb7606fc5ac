"""Known sites, one file each: what a node has there, what the site calls it, its partitions and their limits.

A site is a file `NAME.yaml` in this folder and nothing else: `srunbook generate --cluster NAME`, `srunbook cluster up
--site NAME`, their help, their messages and the JSON Schema take the names from here. A file has two sections:

- `cluster`, a configuration of `srunbook cluster up` with as many nodes as the site has;
- `job`, fields of `srunbook generate`. Its `node` names a group of nodes: a job has all that one of them has, unless a
  field says otherwise; null leaves a field out.

Comments say where each value comes from and what is assumed.

>>> from srunbook import sites
>>> "raven" in sites.names()
True
>>> sites.read("raven")["gpus_per_node"]
'a100:4'
>>> [group["count"] for group in sites.cluster("raven", most=2)["nodes"].values()]
[2, 2, 2]
"""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

__all__ = ["MOST", "cluster", "names", "read"]

SUFFIX = ".yaml"

MOST = 4
"""Nodes of each group that a cluster has, at most, where nothing else is said."""


@cache
def names() -> tuple[str, ...]:
    """Return the names of all known sites, sorted. Read no file, so that a command can name them in its help."""
    entries = (entry.name for entry in files(__name__).iterdir())
    return tuple(sorted(name.removesuffix(SUFFIX) for name in entries if name.endswith(SUFFIX)))


@cache
def read(name: str) -> MappingProxyType[str, Any]:
    """Read the fields of a job that a site sets, as `srunbook.generate.JobSpecification` has them.

    Raises:
        ValueError: There is no such site; the message names all.
    """
    sections = _sections(name)
    job = dict(sections.get("job") or {})
    group = sections["cluster"]["nodes"][job.pop("node")] if "node" in job else {}
    fields = {**_whole_node(group), **job}
    return MappingProxyType({field: value for field, value in fields.items() if value is not None})


def cluster(name: str, *, most: int = MOST) -> dict[str, Any]:
    """Read the configuration of a test cluster that is like a site, as `srunbook cluster up --config` takes it.

    Each group has at most `most` nodes; a site has more than one machine can stand in for.

    Raises:
        ValueError: There is no such site, or its file describes no cluster; the message names those that do.
    """
    sections = _sections(name)
    if "cluster" not in sections:
        described = [known for known in names() if "cluster" in _sections(known)]
        raise ValueError(f"the site {name} describes no cluster; these do: {', '.join(described)}")
    values: dict[str, Any] = deepcopy(sections["cluster"])
    for group in values["nodes"].values():
        group["count"] = min(group["count"], most)
    return values


def _whole_node(group: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a job that takes all of a node; nothing without one."""
    if not group:
        return {}
    gpus = [text.removeprefix("gpu:") for text in group.get("gres", ()) if text.startswith("gpu:")]
    return {
        "gpus_per_node": (int(gpus[0]) if gpus[0].isdigit() else gpus[0]) if gpus else None,
        "cpus_per_node": group["cpus"],
        "memory_per_node": group["memory"],
    }


@cache
def _sections(name: str) -> dict[str, Any]:
    if name not in names():
        raise ValueError(f"no known site {name!r}; there are {', '.join(names())}")
    from ruamel.yaml import YAML

    text = files(__name__).joinpath(f"{name}{SUFFIX}").read_text(encoding="utf-8")
    sections: dict[str, Any] = YAML(typ="safe", pure=True).load(text)
    return sections
