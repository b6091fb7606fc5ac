"""Check before the start what would hang or abort later."""

from __future__ import annotations

import errno
import functools
import os
import re
import shutil
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from srunbook.simulate._errors import SimulationError
from srunbook.slurm import SlurmParseError, expand_tasks

MAX_TASKS = 64
"""More tasks than this are refused: the simulation is for a handful of processes on one machine."""

MAX_GPUS = 64
"""More GPUs of a node than this are refused: no node has them, and the environment lists all their numbers."""

LOOKUP_SECONDS = 3.0
"""How long this machine's own name may take to resolve."""


def task_layout(nodes: int | None, ntasks_per_node: int | str) -> tuple[tuple[int, ...], bool]:
    """Check the number of nodes and tasks.

    Returns:
        The number of tasks on each node, and whether one plain number was given.

    Raises:
        SimulationError: A number is out of range, or the two contradict each other.
    """
    if nodes is not None and not 1 <= nodes <= MAX_TASKS:
        raise SimulationError(f"the number of nodes is {nodes}; it is 1 to {MAX_TASKS}, as in --nodes 2")
    text = str(ntasks_per_node)
    uniform = re.fullmatch(r"-?[0-9]{1,9}", text) is not None
    if uniform:
        counts = [int(text)] * (nodes or 1)
    else:
        try:
            counts = expand_tasks(text)
        except SlurmParseError as error:
            raise SimulationError(f"tasks per node: {error}; a plain number does too, as in 2") from None
    if nodes is not None and len(counts) != nodes:
        raise SimulationError(
            f"the layout {text!r} has {len(counts)} nodes, but {nodes} were asked for; "
            "they agree, as in --nodes 3 --ntasks-per-node '4(x2),3'"
        )
    if min(counts) < 1:
        raise SimulationError(f"tasks per node are {text}; each node has 1 or more, as in --ntasks-per-node 2")
    if sum(counts) > MAX_TASKS:
        raise SimulationError(
            f"{sum(counts)} tasks were asked for; the simulation runs {MAX_TASKS} at most, for it is one machine"
        )
    return tuple(counts), uniform


def in_range(name: str, value: float | None, *, least: float, most: float | None = None, example: str) -> None:
    """Reject a number below `least` or above `most`, and NaN; None passes.

    Raises:
        SimulationError: It is out of range.
    """
    if value is not None and not (least <= value < float("inf") and (most is None or value <= most)):
        allowed = f"{least:g} or more" if most is None else f"{least:g} to {most:g}"
        raise SimulationError(f"{name} is {value}; it is {allowed}, as in {example}")


def current_directory() -> Path:
    """Return the directory in which the tasks start.

    Raises:
        SimulationError: It was removed, or cannot be read.
    """
    try:
        return Path.cwd()
    except OSError as error:
        raise SimulationError(
            f"the current directory is gone or cannot be read ({error.strerror}); go to one that is there, as in: cd ~"
        ) from None


def executable(argv: Sequence[str], environ: Mapping[str, str], directory: Path) -> str:
    """Find the program of a command.

    Returns:
        Its absolute path, or the path as given where it contains a slash.

    Raises:
        SimulationError: The command is empty, or its program does not exist or is not executable.
    """
    if not argv:
        raise SimulationError("no command was given; it follows two dashes, as in: -- python train.py")
    name = argv[0]
    if not name:
        raise SimulationError(
            "the command is an empty text; is a variable unset? A program comes first, as in: -- python train.py"
        )
    if "/" in name:
        path = directory / name
        if not path.exists():
            raise SimulationError(f"command not found: {name!r} does not exist (seen from {str(directory)!r})")
        if path.is_dir() or not shutil.which(path):
            raise SimulationError(f"cannot execute {name!r}: it is no executable file; try: python {name}")
        return str(path)
    found = shutil.which(name, path=environ.get("PATH"))
    if not found:
        hint = f"; try: ./{name} or python {name}" if (directory / name).exists() else "; is its environment active?"
        raise SimulationError(f"command not found: {name!r} is in no folder of PATH{hint}")
    return str(Path(found).absolute())


def _can_bind(kind: socket.SocketKind, address: str, port: int) -> bool:
    with socket.socket(socket.AF_INET, kind) as probe:
        try:
            probe.bind((address, port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES):
                return False
            raise
    return True


def node_addresses(count: int) -> tuple[tuple[str, ...], list[str]]:
    """Find an address of this machine for each node.

    Linux has all of 127.0.0.0/8; macOS has only 127.0.0.1 until others are added by hand, and all nodes share it.

    Returns:
        The addresses, and the notices to print about them.

    Raises:
        SimulationError: This machine does not even have 127.0.0.1.
    """
    addresses = tuple(f"127.0.0.{number}" for number in range(1, count + 1))
    if not _can_bind(socket.SOCK_STREAM, addresses[0], 0):
        raise SimulationError("127.0.0.1 is not there; bring the loopback interface up, as in: ip link set lo up")
    if _can_bind(socket.SOCK_STREAM, addresses[-1], 0):
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


def _random() -> int:
    """Return a random number that does not depend on the caller's seed."""
    return int.from_bytes(os.urandom(8))


@contextmanager
def fresh_job_id(nodes: Sequence[str]) -> Iterator[int]:
    """Find a job id whose derived ports are free, and keep it from other simulations until the block ends.

    A UDP socket on each port is the lock: the frameworks use TCP, and the system frees it whatever happens to us.

    Raises:
        SimulationError: A thousand random ids had no free ports.
    """
    for _ in range(1000):
        job_id = 100_000 + _random() % 9_900_000
        ports = derived_ports(job_id)
        with ExitStack() as stack:
            try:
                for port in ports:
                    lock = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                    lock.bind(("127.0.0.1", port))
            except OSError:
                continue
            if all(_can_bind(socket.SOCK_STREAM, address, port) for port in ports for address in ("", *set(nodes))):
                yield job_id
                return
    raise SimulationError("found no job id whose ports (61440 to 65535, 15000 to 24999) are free; what listens there?")


@functools.cache
def host_name_problem() -> str | None:
    """Return what is wrong with this machine's own name, which gloo looks up in torch and in JAX, or None."""
    name = socket.gethostname()
    answers: list[list[str] | OSError] = []

    def look_up() -> None:
        try:
            answers.append([str(item[4][0]) for item in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)])
        except OSError as error:
            answers.append(error)

    thread = threading.Thread(target=look_up, daemon=True)
    thread.start()
    thread.join(LOOKUP_SECONDS)
    cure = f"add this line to /etc/hosts: 127.0.0.1 {name}"
    if not answers:
        return f"the name of this machine, {name!r}, did not resolve within {LOOKUP_SECONDS:g} s; {cure}"
    answer = answers[0]
    if isinstance(answer, OSError):
        return f"the name of this machine, {name!r}, does not resolve, so JAX's collectives will abort; {cure}"
    own = [address for address in answer if ":" in address or _can_bind(socket.SOCK_STREAM, address, 0)]
    if not own:
        return (
            f"the name of this machine, {name!r}, resolves to {', '.join(sorted(set(answer)))}, which is none of its "
            f"addresses, so collectives will hang; {cure}"
        )
    return None


def spare_from_proxy(environ: dict[str, str], nodes: Sequence[str]) -> str | None:
    """Keep a proxy out of the traffic between the nodes: JAX's start hangs when lower-case http_proxy is set.

    The proxy itself stays, since programs may need it for downloads; the nodes are added to no_proxy.

    Args:
        environ: The environment of the tasks; `no_proxy` is changed in it.
        nodes: Names of the nodes.

    Returns:
        The notice to print about it, or None where no proxy is set.
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
