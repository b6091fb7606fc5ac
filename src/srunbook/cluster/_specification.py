"""What a cluster is to be: its generation of Slurm, its nodes and what each of them claims to have."""

from __future__ import annotations

import re
from dataclasses import dataclass

from srunbook.cluster._errors import SpecificationError

GENERATIONS = {"22.05": "bookworm", "24.11": "trixie", "26.05": "sid"}
"""Generation of Slurm, and the Debian suite whose packages hold it."""

NEWEST = "newest"
"""Whatever sid holds today; every stamp says which version that was."""

MEMORY_RANGE_MIB = (512, 1024 * 1024)
"""Memory that a node may claim, in MiB: 512 MiB to 1 TiB."""

_UNITS = {"M": 1, "G": 1024, "T": 1024 * 1024}


def suite_of(slurm: str) -> str:
    """Return the Debian suite that holds a generation of Slurm.

    Raises:
        SpecificationError: The generation is unknown.

    >>> suite_of("22.05")
    'bookworm'
    """
    if slurm == NEWEST:
        return "sid"
    if slurm not in GENERATIONS:
        known = ", ".join([*GENERATIONS, NEWEST])
        raise SpecificationError(f"unknown generation of Slurm {slurm!r}: choose one of {known}, as in --slurm 22.05")
    return GENERATIONS[slurm]


def parse_memory(text: str) -> int:
    """Read an amount of memory.

    Args:
        text: A whole number with the unit M, G or T.

    Returns:
        The amount in MiB.

    Raises:
        SpecificationError: It is not of that form, or out of range.

    >>> parse_memory("64G")
    65536
    """
    match = re.fullmatch(r"(\d{1,12})([MGT])", text)
    lowest, highest = MEMORY_RANGE_MIB
    if not match:
        raise SpecificationError(f"memory {text!r} is not a whole number with the unit M, G or T, as in --memory 64G")
    mebibytes = int(match[1]) * _UNITS[match[2]]
    if not lowest <= mebibytes <= highest:
        raise SpecificationError(f"memory {text!r}: allowed are {lowest}M to {highest // 1024}G, as in --memory 64G")
    return mebibytes


def parse_rate(text: str) -> str:
    """Check the rate of a link, as `tc` takes it.

    Raises:
        SpecificationError: It is not a whole number of kbit, mbit or gbit, or is out of range.

    >>> parse_rate("100mbit")
    '100mbit'
    """
    match = re.fullmatch(r"(\d{1,9})(kbit|mbit|gbit)", text)
    bits = int(match[1]) * {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9}[match[2]] if match else 0
    if not 100_000 <= bits <= 40 * 10**9:
        raise SpecificationError(f"link {text!r}: a rate is 100kbit to 40gbit, as in --link 100mbit")
    return text


def check_name(name: str) -> str:
    """Check the name of a cluster.

    Raises:
        SpecificationError: It is not 1 to 32 lower-case letters, digits or hyphens, beginning with a letter.
    """
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,31}", name):
        raise SpecificationError(
            f"name {name!r}: a cluster's name has 1 to 32 lower-case letters, digits or hyphens "
            "and begins with a letter, as in --name trial"
        )
    return name


def _check_range(what: str, value: int, lowest: int, highest: int, example: str) -> None:
    if not lowest <= value <= highest:
        raise SpecificationError(f"{what} {value}: allowed are {lowest} to {highest}, as in {example}")


@dataclass(frozen=True)
class Specification:
    """A cluster as it was asked for.

    Args:
        name: What it is called; clusters of different names can run at once.
        slurm: Generation of Slurm: 22.05, 24.11, 26.05, or `newest`.
        nodes: Number of compute nodes, 1 to 64.
        cpus: CPUs that each node claims to have, whatever the machine has.
        memory: Memory that each node claims to have, such as 64G.
        gpus_per_node: GPUs that each node claims to have. Slurm schedules them; they cannot compute.
        features: Features of the nodes; the first one is also the type of the GPUs.
        cpu_quota: Share of one CPU that a node may use, or None for no limit.
        link: Rate of every node's link, such as 1gbit, or None for no limit.

    Raises:
        SpecificationError: A value is out of range.
    """

    name: str = "srunbook"
    slurm: str = NEWEST
    nodes: int = 4
    cpus: int = 16
    memory: str = "64G"
    gpus_per_node: int = 4
    features: tuple[str, ...] = ("a100",)
    cpu_quota: float | None = None
    link: str | None = None

    def __post_init__(self) -> None:
        """Check every value."""
        check_name(self.name)
        suite_of(self.slurm)
        _check_range("nodes", self.nodes, 1, 64, "--nodes 4")
        _check_range("cpus", self.cpus, 1, 256, "--cpus 16")
        _check_range("gpus per node", self.gpus_per_node, 0, 16, "--gpus-per-node 4")
        parse_memory(self.memory)
        for feature in self.features:
            if not re.fullmatch(r"[a-z][a-z0-9_-]{0,31}", feature):
                raise SpecificationError(
                    f"feature {feature!r}: a feature has up to 32 lower-case letters, digits, underscores "
                    "or dashes and begins with a letter, as in --features a100,gpu-bw"
                )
        if self.gpus_per_node and not self.features:
            raise SpecificationError("features: GPUs need a type, which is the first feature, as in --features a100")
        if self.cpu_quota is not None and not 0.05 <= self.cpu_quota <= 64:
            raise SpecificationError(f"cpu quota {self.cpu_quota}: allowed are 0.05 to 64 CPUs, as in --cpu-quota 0.5")
        if self.link is not None:
            parse_rate(self.link)

    @property
    def suite(self) -> str:
        """Return the Debian suite of its roots."""
        return suite_of(self.slurm)

    @property
    def memory_mib(self) -> int:
        """Return the memory that a node claims, in MiB."""
        return parse_memory(self.memory)

    @property
    def node_names(self) -> tuple[str, ...]:
        """Name of the compute nodes.

        >>> Specification(nodes=2).node_names
        ('node1', 'node2')
        """
        return tuple(f"node{index}" for index in range(1, self.nodes + 1))

    @property
    def machines(self) -> tuple[str, ...]:
        """Return the names of all machines of the cluster: the controller, the login node and the compute nodes."""
        return ("ctl", "login", *self.node_names)

    def address(self, machine: str) -> str:
        """Return the address of a machine in the cluster's own network.

        >>> Specification().address("node3"), Specification().address("ctl")
        ('10.77.0.3', '10.77.0.254')
        """
        special = {"ctl": 254, "login": 253}
        return f"10.77.0.{special.get(machine) or int(machine.removeprefix('node'))}"
