"""Find this process's rank and world from arguments and the environment. Standard library only, no side effects."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from srunbook.distributed._arguments import checked_address, checked_cpu_devices, checked_port, checked_process
from srunbook.distributed._devices import cpu_devices as devices_of_cpu
from srunbook.distributed._devices import gpu_ids
from srunbook.distributed._errors import DistributedError
from srunbook.slurm import NotInStepError, SlurmParseError, StepEnvironment, expand_hostlist

FIRST_PORT, PORTS = 61440, 4096
"""Derived ports lie above those that Linux hands out by itself (32768 to 60999)."""

STEP_STRIDE = 1021
"""Distance between the ports of two steps of a job, so that the next step is not the next job either."""

SIGNS_OF_SLURM = ("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_PROCID", "SLURM_STEP_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS")
"""Where one of these is set, the rest of a step's environment has to be there, too."""


@dataclass(frozen=True)
class Place:
    """One process among the processes of a program.

    Args:
        process_id: Its number, from 0.
        num_processes: How many there are.
        host: Name or address of process 0, or None for a single process.
        port: The coordinator's port, or None for a single process.
        source: Where this comes from: `slurm`, `arguments` or `single`.
        cpu_devices: How many CPU devices JAX is told to make, or None where JAX reads that itself.
        local_device_ids: Numbers of this process's GPUs among those that it sees, or None for all.
        node: Name of its node.
        nodes: The node of each process, or empty where it is not known.
        key: Text that the processes of one program share, and those of other programs do not have.
    """

    process_id: int
    num_processes: int
    host: str | None
    port: int | None
    source: str
    cpu_devices: int | None
    local_device_ids: tuple[int, ...] | None
    node: str
    nodes: tuple[str, ...] = ()
    key: str = ""

    @property
    def coordinator_address(self) -> str | None:
        """Host and port of process 0, with a colon between them, or None for a single process."""
        if self.host is None:
            return None
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def find_place(
    environ: Mapping[str, str] | None = None,
    *,
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    port: int | None = None,
    local_device_ids: Sequence[int] | None = None,
    cpu_devices: int | None = None,
) -> Place:
    """Find the rank of this process and the number of all, without starting anything.

    Arguments take precedence over the environment.

    Args:
        environ: The environment; by default that of this process.
        coordinator_address: Host of process 0, with or without `:port`.
        num_processes: Number of processes; comes with `process_id`.
        process_id: Number of this process, from 0.
        port: The coordinator's port, 1024 to 65535. A single process ignores it.
        local_device_ids: Numbers of this process's GPUs, from 0. Ignored on CPUs.
        cpu_devices: Number of CPU devices of this process.

    Raises:
        DistributedError: Arguments or environment are incomplete, or contradict each other.

    >>> find_place({}, cpu_devices=2).num_processes
    1
    >>> find_place({}, coordinator_address="n1:5000", num_processes=2, process_id=1).coordinator_address
    'n1:5000'
    """
    environ = os.environ if environ is None else environ
    cpu_devices = checked_cpu_devices(cpu_devices)
    coordinator_address = checked_address(coordinator_address)
    port = None if port is None else checked_port(port, "port")
    step: StepEnvironment | None = None
    nodes: tuple[str, ...] = ()
    if num_processes is not None or process_id is not None:
        number, count = checked_process(process_id, num_processes)
        source, key = "arguments", f"arguments {count}"
    elif found := [name for name in SIGNS_OF_SLURM if environ.get(name)]:
        step = _step(environ, found)
        number, count, source = step.rank, step.world_size, "slurm"
        key = f"{step.job_id}.{step.step_id}.{step.restart_count} {count}"
        nodes = tuple(node for node, tasks in zip(step.nodes, step.tasks_per_node, strict=True) for _ in range(tasks))
    elif coordinator_address is not None:
        raise DistributedError(
            f"coordinator_address={coordinator_address!r}, but srun did not start this process, and num_processes and "
            "process_id are not given: how many are there, and which of them is this? As in initialize_distributed("
            "coordinator_address='node1:54321', num_processes=4, process_id=0), or: srun python train.py"
        )
    else:
        number, count, source, key = 0, 1, "single", "single"
    several = count > 1
    host, chosen = _coordinator(environ, step, coordinator_address, port) if several else (None, None)
    return Place(
        process_id=number,
        num_processes=count,
        host=host,
        port=chosen,
        source=source,
        cpu_devices=devices_of_cpu(environ, step, cpu_devices),
        local_device_ids=gpu_ids(environ, step, local_device_ids),
        node=step.node if step else environ.get("SLURMD_NODENAME") or socket.gethostname(),
        nodes=nodes,
        key=key,
    )


def derived_port(job_id: int, step_id: int) -> int:
    """Derive the coordinator's port from the ids of job and step, as JAX does for the first step of a job.

    >>> derived_port(17, 0), derived_port(17, 1), derived_port(18, 0)
    (61457, 62478, 61458)
    """
    return FIRST_PORT + (job_id + STEP_STRIDE * step_id) % PORTS


def _step(environ: Mapping[str, str], found: list[str]) -> StepEnvironment:
    """Read the step in which srun started this process."""
    if not (environ.get("SLURM_JOB_ID") or environ.get("SLURM_JOBID")):
        raise DistributedError(
            f"{', '.join(found)} set, but SLURM_JOB_ID is not: half of a Slurm environment has reached this process. "
            "A container or a shell that drops variables has to keep SLURM_*; then start all processes with: "
            "srun python train.py"
        )
    try:
        _refuse_components(environ)
        return StepEnvironment.from_environ(environ)
    except NotInStepError as error:
        raise DistributedError(
            f"{error}. For one process without the others: initialize_distributed(num_processes=1)"
        ) from error
    except SlurmParseError as error:
        raise DistributedError(
            f"{error}. Keep what srun sets, and start the processes with: srun python train.py"
        ) from error


def _refuse_components(environ: Mapping[str, str]) -> None:
    """Reject a step that spans components of a heterogeneous job; a step within one component is like any other."""
    size = environ.get("SLURM_HET_SIZE") or "1"
    if not re.fullmatch(r"[0-9]{1,4}", size, re.ASCII):
        raise DistributedError(
            f"SLURM_HET_SIZE={size!r}: Slurm sets it to the number of components of a job, as in 2. Keep what srun "
            "sets, and start the processes with: srun python train.py"
        )
    if int(size) < 2 or not environ.get("SLURM_STEP_NODELIST"):
        return
    here = set(expand_hostlist(environ["SLURM_STEP_NODELIST"]))
    components = [
        set(expand_hostlist(nodes))
        for name, nodes in environ.items()
        if re.fullmatch(r"SLURM_JOB_NODELIST_(HET|PACK)_GROUP_\d+", name)
    ]
    if not any(here <= component for component in components):
        raise DistributedError(
            f"SLURM_HET_SIZE={size}: this step spans the components of a heterogeneous job, whose tasks differ in "
            "CPUs and GPUs, so that particles cannot be shared evenly. Run the program in one component: "
            "srun --het-group=0 python train.py"
        )


def _coordinator(
    environ: Mapping[str, str], step: StepEnvironment | None, address: str | None, port: int | None
) -> tuple[str, int]:
    """Return host and port of process 0; the port of the address, else the argument, else the environment."""
    named, where = address, "coordinator_address"
    for name in ("SLURM_COORDINATOR_ADDRESS", "JAX_COORDINATOR_ADDRESS"):
        if named is None and environ.get(name):
            named, where = environ[name], name
    if named is None and step is None:
        raise DistributedError(
            "coordinator_address is not given; without srun the processes need it, as in "
            "initialize_distributed(coordinator_address='node1:54321', num_processes=4, process_id=0), "
            "or let Slurm tell them: srun python train.py"
        )
    host, own = _split(named, where) if named is not None else (step.coordinator if step else "", None)
    if port is not None and own is not None and port != own and where == "coordinator_address":
        raise DistributedError(f"coordinator_address={named!r} and port={port} name two ports; give one of them")
    if port is not None:
        return host, port
    if own is not None:
        return host, own
    if environ.get("JAX_COORDINATOR_PORT"):
        return host, checked_port(environ["JAX_COORDINATOR_PORT"], "JAX_COORDINATOR_PORT")
    if step is None:
        raise DistributedError(
            f"{where}={named!r} has no port; write host:port, as in {host}:54321, "
            "or set one for all processes: export JAX_COORDINATOR_PORT=54321"
        )
    return host, derived_port(step.job_id, step.step_id)


def _split(text: str, where: str) -> tuple[str, int | None]:
    """Split an address into host and port; the port is None where the address has none."""
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.%\w]+)\]|([^\s:\[\]/]+))(?::(\w*))?", text)
    if not match:
        raise DistributedError(
            f"{where}={text!r} is no address; it reads like node1 or node1:54321, as in: "
            "export SLURM_COORDINATOR_ADDRESS=node1; srun python train.py"
        )
    return match[1] or match[2], checked_port(match[3], where) if match[3] is not None else None
