"""Known sites, one file each: what a node has there, and what the site calls it.

A site is a file `NAME.yaml` in this folder and nothing else: `srunbook generate --cluster NAME`, its help, its
messages and the JSON Schema take the names from here. A file holds fields of a job, as a configuration of
`srunbook generate` does, and says in its comments what it assumes.

>>> from srunbook import sites
>>> "raven" in sites.names()
True
>>> sites.read("raven")["gpus_per_node"]
'a100:4'
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

__all__ = ["names", "read"]

SUFFIX = ".yaml"


@cache
def names() -> tuple[str, ...]:
    """Return the names of all known sites, sorted. Read no file, so that a command can name them in its help."""
    found = (entry.name for entry in files(__name__).iterdir())
    return tuple(sorted(name.removesuffix(SUFFIX) for name in found if name.endswith(SUFFIX)))


@cache
def read(name: str) -> MappingProxyType[str, Any]:
    """Read the fields of a job that a site sets.

    Args:
        name: One of `names()`.

    Returns:
        Values by field; none for a site without peculiarities. Their units are those of the fields of
        `srunbook.generate.JobSpecification`.

    Raises:
        ValueError: There is no such site; the message names all.
    """
    if name not in names():
        raise ValueError(f"no known site {name!r}; there are {', '.join(names())}")
    from ruamel.yaml import YAML

    text = files(__name__).joinpath(f"{name}{SUFFIX}").read_text(encoding="utf-8")
    return MappingProxyType(YAML(typ="safe", pure=True).load(text) or {})
