"""Make a specification of a file and options, the later over the earlier, with the place of every value."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from srunbook import sites
from srunbook._yaml import Document, MalformedError, origin_of, read_document
from srunbook.cluster._errors import SpecificationError
from srunbook.cluster._mistakes import Places, raise_problems
from srunbook.cluster._specification import Specification


def read_specification(
    path: Path | None = None, options: Mapping[str, Any] | None = None, *, site: str | None = None
) -> Specification:
    """Read a specification from a known site, from a file, and from options; the later win over the earlier.

    Args:
        path: A file in YAML 1.2, whose folder is where relative paths in it begin.
        options: Further fields by name, as in `{"nodes": 2}`; with the groups of a site, so many nodes of each at most.
        site: One of `srunbook.sites.names()`, whose nodes, partitions, QOS and accounts to begin from.

    Returns:
        The specification, with absolute paths.

    Raises:
        SpecificationError: There is no such site, the file cannot be read, a key is unknown, a value is not allowed,
            two contradict each other, or a folder of the host is not there. The message has the line of each.
    """
    options = dict(options or {})
    try:
        document = read_document(path) if path else Document("", {})
    except MalformedError as error:
        raise SpecificationError(str(error)) from None
    most = options.pop("nodes", None) if site and "nodes" not in document.values else None
    base = _of_site(site, most) if site else {}

    def origin(where: tuple[Any, ...]) -> str:
        if where and where[0] in options:
            return f"--{str(where[0]).replace('_', '-')}"
        if where and where[0] in base and where[0] not in document.values:
            return f"site {site}"
        return origin_of(where, document.place or "default", document.lines)

    places = Places(origin)
    values = {**base, **document.values, **options}
    specification = with_whole_paths(Specification.model_validate(values, context=places), path)
    raise_problems(missing_places(specification), places)
    return specification


def _of_site(site: str, most: int | None) -> dict[str, Any]:
    """Read the configuration of a site, with so many nodes of each group at most."""
    if most is not None and most < 1:
        raise SpecificationError(f"--nodes is {most}: give at least 1 node of each group, as in --nodes 2")
    try:
        return sites.cluster(site, most=most or sites.MOST)
    except ValueError as error:
        raise SpecificationError(f"--site: {error}") from None


def with_whole_paths(specification: Specification, path: Path | None) -> Specification:
    """Return a specification whose relative paths begin at the folder of its file."""
    folder = path.absolute().parent if path else Path.cwd()
    mounts = {
        target: mount.model_copy(update={"source": str(folder / Path(mount.source).expanduser())})
        for target, mount in specification.mounts.items()
    }
    environments = {name: str(folder / Path(place).expanduser()) for name, place in specification.environments.items()}
    changes = {"mounts": mounts, "environments": environments}
    return specification.model_copy(update={name: value for name, value in changes.items() if value})


def missing_places(specification: Specification) -> list[tuple[tuple[Any, ...], str]]:
    """Return which folders of the host are not there, or are no Python environment."""
    found: list[tuple[tuple[Any, ...], str]] = []
    for target, mount in specification.mounts.items():
        if not Path(mount.source).exists():
            text = f"there is no folder {mount.source} on this machine, to be mounted at {target}: make it first"
            found.append((("mounts", target, "source"), text))
    for name, place in specification.environments.items():
        if not Path(place, "bin", "python").exists():
            text = f"{place} is no Python environment: there is no {place}/bin/python. Make it with python -m venv"
            found.append((("environments", name), text))
    return found
