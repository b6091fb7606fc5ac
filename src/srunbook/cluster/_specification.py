"""What a cluster is to be, as it was asked for: fields, checks, and how a file and options become one."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cached_property
from itertools import chain, count, islice
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    ModelWrapValidatorHandler,
    Tag,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from srunbook import sites
from srunbook._yaml import Layer, MalformedError, read_document, shown
from srunbook.cluster._errors import SpecificationError
from srunbook.cluster._sections import (
    CLUSTER_NAME,
    NEWEST,
    SECOND_USER,
    SUITES,
    USER,
    USER_IDS,
    Feature,
    Lines,
    Memory,
    Mount,
    NodeGroup,
    field,
)

MAX_NODES = 256
"""Nodes of a cluster, at most."""

PARTITIONS = """\
PartitionName=DEFAULT MaxTime=1-00:00:00 PriorityTier=10 PreemptMode=OFF
PartitionName=batch Default=YES
PartitionName=gpu
PartitionName=cpu
PartitionName=debug MaxTime=00:30:00 PriorityTier=20
PartitionName=preempt PriorityTier=1 PreemptMode=REQUEUE
"""
"""The partitions of a cluster that has none of its own."""

ACCOUNTS = """\
add account research,my-project
add user {users} account=research,my-project defaultaccount=research
"""
"""The accounts of a cluster that has none of its own."""

Nodes = Annotated[
    Annotated[int, Field(ge=1, le=MAX_NODES), Tag("number")]
    | Annotated[
        dict[Annotated[str, Field(pattern=r"^[A-Za-z][\w.-]{0,31}$")], NodeGroup], Field(min_length=1), Tag("groups")
    ],
    Discriminator(lambda value: "groups" if isinstance(value, dict) else "number"),
]
Slurm = Annotated[  # YAML reads 22.05 as a number
    str,
    BeforeValidator(lambda value: f"{value:.2f}" if isinstance(value, float) else value),
    Field(pattern=f"^(?:{'|'.join(map(re.escape, SUITES))})$"),
]
User = Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_.@-]{0,30}$")]
Package = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9+.-]{1,63}$")]
MachinePath = Annotated[str, Field(pattern=r"^(?:/[A-Za-z0-9_-][A-Za-z0-9._+-]*)+$")]


class Specification(BaseModel):
    """A cluster as it was asked for: options of the command, a file, or both; `read_specification` reads a file.

    A `SpecificationError` says which keys are unknown, which values are not allowed, and which contradict each other.

    >>> Specification(nodes=2).node_names
    ('node1', 'node2')
    """

    model_config = ConfigDict(extra="forbid", frozen=True, validate_by_name=True)

    name: Annotated[str, Field(pattern=CLUSTER_NAME)] = field(
        "The cluster's name: lower-case letters, digits and hyphens. Clusters with different names can run together.",
        "trial",
        "srunbook",
    )
    slurm: Slurm = field(f"Generation of Slurm: {', '.join(SUITES)}.", "22.05", NEWEST)
    nodes: Nodes = field("The nodes: a number from 1 to 256 if all are alike, or groups by name.", 4, 4)
    cpus: int = field("CPUs that each node claims, 1 to 1024, if all nodes are alike.", 16, 16, ge=1, le=1024)
    memory: Memory = field("Memory that each node claims, if all nodes are alike.", "64G", "64G")
    gpus_per_node: int = field("GPUs that each node claims, 0 to 16, if all nodes are alike.", 4, 4, ge=0, le=16)
    features: tuple[Feature, ...] = field(
        "Features of the nodes, if all nodes are alike; the first feature is also the GPU type.",
        ["a100", "ib"],
        ("a100",),
    )
    cpu_quota: float | None = field("CPUs that each node can really use, 0.05 to 64.", 0.5, None, ge=0.05, le=64)
    link: Annotated[str, Field(pattern=r"^[1-9][0-9]*[kmg]bit$")] | None = field(
        "Rate of each node's link: a number and kbit, mbit or gbit.", "1gbit", None
    )
    partitions: Lines = field(
        "The PartitionName lines of slurm.conf; for nodes, they may name groups. "
        "By default batch, gpu, cpu, debug and preempt.",
        "PartitionName=long Nodes=a100 MaxTime=7-0\n",
        PARTITIONS,
        min_length=1,
    )
    users: tuple[User, ...] = field("The users.", ["alice", "carol"], (USER, SECOND_USER), min_length=1)
    sacctmgr: Lines = field(
        "The accounts, users' associations, QOS and limits: a command of sacctmgr on each line. "
        "By default, all users may charge the accounts research and my-project, and any --qos works.",
        "add account physics\nadd user alice account=physics\n",
        "",
    )
    slurm_conf: Lines = field(
        "Your lines for slurm.conf. A setting replaces the cluster's own.",
        "MaxArraySize=2001\n",
        "",
        alias="slurm.conf",
    )
    cgroup_conf: Lines = field("Your lines for cgroup.conf.", "AllowedRAMSpace=90\n", "", alias="cgroup.conf")
    gres_conf: Lines = field("Your lines for gres.conf.", "AutoDetect=off\n", "", alias="gres.conf")
    files: dict[MachinePath, Lines] = field(
        "Files on every machine, by path, such as a prolog, a modulefile or topology.conf. "
        "A file that begins with #! can be run.",
        {"/opt/modulefiles/cuda/12.4": "#%Module\nsetenv CUDA_HOME /usr/local/cuda\n"},
        dict,
    )
    packages: tuple[Package, ...] = field(
        "Debian packages that every machine gets besides Slurm's own. Each list needs its own Debian root.",
        ["git", "python3-venv"],
        (),
    )
    mounts: dict[MachinePath, Mount] = field(
        "Folders of your machine, by the path at which the cluster's machines see them.",
        {"/shared": {"source": "./data", "writable": True}},
        dict,
    )

    @model_validator(mode="wrap")
    @classmethod
    def _in_sentences(
        cls, values: Any, handler: ModelWrapValidatorHandler[Specification], info: ValidationInfo
    ) -> Specification:
        """Turn what pydantic says into sentences that name the place of a value."""
        try:
            specification = handler(values)
            problems = _of_nodes(specification)
        except ValidationError as error:
            items = [(_path(item["loc"]), item) for item in error.errors(include_url=False)]
            problems = [(path, _sentence(path, item)) for path, item in items]
        if problems:
            origin = info.context  # says where a value comes from, such as `cluster.yaml:3`
            lines = [f"{origin(path)}: {text}" if origin else text for path, text in problems]
            raise SpecificationError("\n".join(lines))
        return specification

    @cached_property
    def groups(self) -> dict[str, NodeGroup]:
        """Return the groups of nodes by name; nodes that are all alike are one group, `nodes`."""
        if isinstance(self.nodes, dict):
            return self.nodes
        gres = (":".join(["gpu", *self.features[:1], str(self.gpus_per_node)]),) if self.gpus_per_node else ()
        group = NodeGroup(count=self.nodes, cpus=self.cpus, memory=self.memory, gres=gres, features=self.features)
        return {"nodes": group}

    @cached_property
    def members(self) -> dict[str, tuple[str, ...]]:
        """Return the nodes of each group; they are numbered consecutively, from 1.

        >>> Specification(nodes={"a": {"count": 2}, "b": {"count": 1}}).members
        {'a': ('node1', 'node2'), 'b': ('node3',)}
        """
        numbers = count(1)
        return {
            name: tuple(f"node{number}" for number in islice(numbers, group.count))
            for name, group in self.groups.items()
        }

    @cached_property
    def node_names(self) -> tuple[str, ...]:
        """Names of the compute nodes."""
        return tuple(chain.from_iterable(self.members.values()))

    def group_of(self, node: str) -> NodeGroup:
        """Return the group of a node."""
        return next(self.groups[name] for name, nodes in self.members.items() if node in nodes)

    @property
    def user_ids(self) -> dict[str, int]:
        """Return the users' ids, which are too high for any user of the host."""
        return {name: number for number, name in enumerate(self.users, USER_IDS[USER])}

    @property
    def machines(self) -> tuple[str, ...]:
        """Return the names of all machines, which are the controller, the login node and the compute nodes."""
        return ("ctl", "login", *self.node_names)

    def address(self, machine: str) -> str:
        """Return the address of a machine in the cluster's own network.

        >>> Specification().address("node3"), Specification().address("ctl"), Specification().address("node256")
        ('10.77.0.3', '10.77.0.254', '10.77.1.6')
        """
        special = {"ctl": 254, "login": 253}
        number = special.get(machine) or int(machine.removeprefix("node"))
        return f"10.77.0.{number}" if number <= 250 or machine in special else f"10.77.1.{number - 250}"

    def hardware_address(self, machine: str) -> str:
        """Return the hardware address of a machine, which follows from its address."""
        return ":".join(f"{int(part):02x}" for part in ("2", "0", *self.address(machine).split(".")))


Place = tuple[Any, ...]
"""Keys that lead to a value."""

Problem = tuple[Place, str]
"""Path of the value that a problem is about, and the problem in a sentence."""

SECTIONS: dict[str, type[BaseModel]] = {"nodes": NodeGroup, "mounts": Mount}
"""The model of each section, which holds several by name."""


def keys(model: type[BaseModel]) -> dict[str, Any]:
    """Return the fields of a model by the key that a file has for them."""
    return {info.alias or name: info for name, info in model.model_fields.items()}


def _path(place: Place) -> Place:
    """Leave out of the place of an error what pydantic adds for keys, and for the two forms of `nodes`."""
    return tuple(part for part in place[:1] + place[1 + (place[:1] == ("nodes",)) :] if part != "[key]")


def _sentence(path: Place, item: Mapping[str, Any]) -> str:
    """Say what is wrong with a value: what was found, what is allowed, an example."""
    value = shown(item["input"])
    if item["loc"][-1] == "[key]":
        return f"{value} can't be a key of {path[-2]}: a key matches {item['ctx']['pattern']}"
    inside = path[0] in SECTIONS and len(path) > 2
    known = keys(SECTIONS[path[0]] if inside else Specification)
    key = path[2 if inside else 0]
    if item["type"] == "extra_forbidden":
        near = get_close_matches(str(key).lower().replace("-", "_"), known, n=1)
        return f"unknown key {shown(key)}; " + (
            f"did you mean {near[0]}?" if near else f"the keys are {', '.join(known)}"
        )
    names = ".".join(str(part) for part in path if not isinstance(part, int))
    dotted = names + "".join(f"[{part}]" for part in path if isinstance(part, int))
    missing = "is missing" if item["type"] == "missing" else f"is {value}"
    example = json.dumps(known[key].examples[0], ensure_ascii=False)
    return f"{dotted} {missing}. {known[key].description} Example: {key}: {example}"


def _of_nodes(specification: Specification) -> list[Problem]:
    """Return how the nodes contradict each other; Slurm judges the rest."""
    problems: list[Problem] = []
    if isinstance(specification.nodes, dict):
        problems += [
            ((name,), f"{name} is for nodes that are all alike: write it into each group of nodes")
            for name in ("cpus", "memory", "gpus_per_node", "features")
            if name in specification.model_fields_set
        ]
    if (total := len(specification.node_names)) > MAX_NODES:
        problems.append((("nodes",), f"the groups have {total} nodes together: a cluster has 1 to {MAX_NODES}"))
    return problems


def read_specification(
    path: Path | None = None, options: Mapping[str, Any] | None = None, *, site: str | None = None
) -> Specification:
    """Read a specification from a known site, from a file and from options; later ones override earlier ones.

    Args:
        path: A file in YAML 1.2; relative paths in it begin at its folder.
        options: Further fields by name, as in `{"nodes": 2}`; with a site's groups, this is the most nodes that each
            group gets.
        site: One of `srunbook.sites.names()`, whose nodes, partitions and accounts are the starting point.

    Returns:
        The specification, with absolute paths.

    Raises:
        SpecificationError: There is no such site, the file cannot be read, a key is unknown, a value is not allowed,
            or two values contradict each other. The message gives the line of each problem.
    """
    options = dict(options or {})
    try:
        document = read_document(path) if path else Layer("default", {})
    except MalformedError as error:
        raise SpecificationError(str(error)) from None
    most = options.pop("nodes", None) if site and "nodes" not in document.values else None
    try:
        base = sites.cluster(site, most=sites.MOST if most is None else most) if site else {}
    except ValueError as error:
        raise SpecificationError(f"--site: {error}") from None

    def origin(where: Place) -> str:
        if where[0] in options:
            return f"--{str(where[0]).replace('_', '-')}"
        if where[0] in base and where[0] not in document.values:
            return f"site {site}"
        return document.origin(*where)

    specification = Specification.model_validate({**base, **document.values, **options}, context=origin)
    folder = path.absolute().parent if path else Path.cwd()
    mounts = {
        target: mount.model_copy(update={"source": str(folder / Path(mount.source).expanduser())})
        for target, mount in specification.mounts.items()
    }
    return specification.model_copy(update={"mounts": mounts} if mounts else {})
