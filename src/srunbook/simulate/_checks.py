"""Check before the start what would hang or abort later, and find addresses and ports."""

from __future__ import annotations

import functools
import secrets
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from srunbook.slurm import SlurmParseError, expand_tasks

MOST = 64
"""Most tasks: the simulation is for a handful of processes on one machine."""


class SimulationError(ValueError):
    """The simulation cannot be started as asked; nothing was run and nothing written."""


def task_layout(nodes: int | None, ntasks_per_node: int | str) -> tuple[tuple[int, ...], bool]:
    """Return the number of tasks on each node, and whether one plain number was given."""
    text = str(ntasks_per_node)
    uniform = text.isdecimal()
    try:
        counts = [int(text)] * (1 if nodes is None else nodes) if uniform else expand_tasks(text)
    except SlurmParseError as error:
        raise SimulationError(f"tasks per node: {error}; a plain number does too, as in 2") from None
    if nodes is not None and len(counts) != nodes:
        raise SimulationError(
            f"the layout {text!r} has {len(counts)} nodes, but {nodes} were asked for; "
            "they agree, as in --nodes 3 --ntasks-per-node '4(x2),3'"
        )
    if min(counts, default=0) < 1:
        raise SimulationError(f"{len(counts)} nodes of {text} tasks: each number is 1 or more, as in --nodes 2")
    if sum(counts) > MOST:
        raise SimulationError(
            f"{sum(counts)} tasks were asked for; the simulation runs {MOST} at most, for it is one machine"
        )
    return tuple(counts), uniform


def prepare_directory(directory: Path) -> None:
    """Make the directory of the log files, and remove the logs of an earlier simulation from it."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for log in directory.glob("rank-*.log"):
            if log.stem.removeprefix("rank-").isdigit():
                log.unlink()
    except OSError as error:
        raise SimulationError(
            f"cannot write logs into {str(directory)!r}: {error.strerror}; give a directory that can be made or "
            "written, as in --output-dir logs"
        ) from None


def executable(argv: Sequence[str], environ: Mapping[str, str], directory: Path) -> str:
    """Return the absolute path of the program of a command."""
    if not argv:
        raise SimulationError("no command was given; it follows two dashes, as in: -- python train.py")
    name = str(directory / argv[0]) if "/" in argv[0] else argv[0]
    path = shutil.which(name, path=environ.get("PATH"))
    if not path:
        raise SimulationError(
            f"cannot execute {argv[0]!r}: it is no executable file, and in no folder of PATH. Is its environment "
            f"active? A Python program runs with: python {argv[0]}"
        )
    return str(Path(path).absolute())


def _can_bind(address: str, port: int = 0) -> bool:
    """Return whether this machine has the address, and nobody listens at the port."""
    with socket.socket() as probe:
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def node_addresses(count: int) -> tuple[tuple[str, ...], list[str]]:
    """Find an address of this machine for each node, and return the notices to print about them, too.

    Linux has all of 127.0.0.0/8; macOS has only 127.0.0.1 until others are added by hand, and all nodes share it.
    """
    addresses = tuple(f"127.0.0.{number}" for number in range(1, count + 1))
    if not _can_bind(addresses[0]):
        raise SimulationError("127.0.0.1 is not there; bring the loopback interface up, as in: ip link set lo up")
    if _can_bind(addresses[-1]):
        return addresses, []
    return addresses[:1] * count, [
        f"this machine has no address {addresses[-1]}: all {count} nodes share the name {addresses[0]}"
    ]


def derived_ports(job_id: int) -> tuple[int, int]:
    """Return the ports that programs derive from a job id: JAX's and Lightning's.

    >>> derived_ports(1234567)
    (63111, 19567)
    """
    return job_id % 4096 + 61440, job_id % 10000 + 15000


@contextmanager
def fresh_job_id(nodes: Sequence[str]) -> Iterator[int]:
    """Find a job id whose derived ports are free, and keep it from other simulations until the block ends.

    A UDP socket on each port is the lock: the frameworks use TCP, and the system frees it whatever happens to us.

    Raises:
        SimulationError: A thousand random ids had no free ports.
    """
    for _ in range(1000):
        job_id = 100_000 + secrets.randbelow(9_900_000)  # whatever seed the caller has set
        ports = derived_ports(job_id)
        with ExitStack() as stack:
            try:
                for port in ports:
                    lock = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                    lock.bind(("127.0.0.1", port))
            except OSError:
                continue
            if all(_can_bind(address, port) for port in ports for address in ("", *set(nodes))):
                yield job_id
                return
    raise SimulationError("found no job id whose ports (61440 to 65535, 15000 to 24999) are free; what listens there?")


@functools.cache
def host_name_problem() -> str | None:
    """Return what is wrong with this machine's own name, which gloo looks up in torch and in JAX, or None."""
    name = socket.gethostname()
    try:
        addresses = {str(item[4][0]) for item in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)}
    except OSError:
        problem = "does not resolve, so JAX's collectives will abort"
    else:
        if any(":" in address or _can_bind(address) for address in addresses):
            return None
        resolved = ", ".join(sorted(addresses))
        problem = f"resolves to {resolved}, which is none of its addresses, so collectives will hang"
    return f"the name of this machine, {name!r}, {problem}; add this line to /etc/hosts: 127.0.0.1 {name}"


def spare_from_proxy(environ: dict[str, str], nodes: Sequence[str]) -> str | None:
    """Keep a proxy out of the traffic between the nodes: JAX's start hangs when lower-case http_proxy is set.

    The proxy itself stays, since programs may need it for downloads; the nodes are added to no_proxy in `environ`.
    Returns the notice to print about it, or None where no proxy is set.
    """
    proxies = [name for name in ("http_proxy", "https_proxy", "grpc_proxy", "all_proxy") if environ.get(name)]
    if not proxies:
        return None
    spared = [item for item in (environ.get("no_proxy") or environ.get("NO_PROXY") or "").split(",") if item]
    environ["no_proxy"] = ",".join([*spared, *(node for node in dict.fromkeys(nodes) if node not in spared)])
    return (
        f"{' and '.join(proxies)} is set: the nodes were added to no_proxy, for jax.distributed.initialize() hangs "
        "behind a proxy; in a job on a cluster do the same, or unset it"
    )
