"""Find this process's rank, world and devices from arguments and the environment, without starting anything."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from srunbook.slurm import NotInStepError, SlurmParseError, StepEnvironment

FIRST_PORT, PORTS = 61440, 4096
"""Derived ports lie above those that Linux hands out by itself (32768 to 60999)."""

STEP_STRIDE = 1021
"""Distance between the ports of two steps of a job, so that the next step is not the next job either."""

SIGNS_OF_SLURM = ("SLURM_JOB_ID", "SLURM_PROCID", "SLURM_STEP_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS")
"""Where one of these is set, the rest of a step's environment has to be there, too."""

EXAMPLE = "initialize_distributed(coordinator_address='node1:54321', num_processes=4, process_id=0)"

FORCED_DEVICES = "--xla_force_host_platform_device_count="


class DistributedError(RuntimeError):
    """JAX could not be started on all processes; the message names the variable and the line to write."""


@dataclass(frozen=True)
class Place:
    """One process among the processes of a program.

    Args:
        process_id: Its number, from 0.
        num_processes: Number of processes.
        coordinator_address: Address of process 0 as `host:port`, or None for a single process.
        cpu_devices: Number of CPU devices that JAX makes, or None if JAX reads the number itself.
        local_device_ids: Numbers of its GPUs among the ones that it sees, or None if JAX finds them itself.
    """

    process_id: int
    num_processes: int
    coordinator_address: str | None
    cpu_devices: int | None
    local_device_ids: tuple[int, ...] | None


def find_place(
    environ: Mapping[str, str] | None = None,
    *,
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    cpu_devices: int | None = None,
) -> Place:
    """Find this process's rank and the number of processes; takes the same arguments as `initialize_distributed`.

    Raises:
        DistributedError: Arguments or environment variables are missing, or contradict each other.
    """
    environ = os.environ if environ is None else environ
    step = None
    rank, count = 0, 1
    if num_processes is None and process_id is None and any(environ.get(name) for name in SIGNS_OF_SLURM):
        step = _step(environ)
        rank, count = step.rank, step.world_size
    elif num_processes is not None or process_id is not None or coordinator_address is not None:
        rank, count = _given(process_id, num_processes)
    return Place(
        process_id=rank,
        num_processes=count,
        coordinator_address=_coordinator(environ, step, coordinator_address) if count > 1 else None,
        cpu_devices=_cpu_devices(environ, step, cpu_devices),
        local_device_ids=_gpu_ids(environ, step),
    )


def derived_port(job_id: int, step_id: int) -> int:
    """Derive the coordinator's port from the ids of job and step, as JAX does for the first step of a job.

    >>> derived_port(17, 0), derived_port(17, 1), derived_port(18, 0)
    (61457, 62478, 61458)
    """
    return FIRST_PORT + (job_id + STEP_STRIDE * step_id) % PORTS


def _step(environ: Mapping[str, str]) -> StepEnvironment:
    """Read the step in which srun started this process."""
    try:
        return StepEnvironment.from_environ(environ)
    except (NotInStepError, SlurmParseError) as error:
        raise DistributedError(
            f"{error}. Start all processes with: srun python train.py. A container or a shell that drops variables has "
            "to keep SLURM_*. For one process without the others: initialize_distributed(num_processes=1)"
        ) from error


def _given(process_id: int | None, num_processes: int | None) -> tuple[int, int]:
    """Return the rank of this process and the number of all, given as arguments."""
    rank = 0 if process_id is None and num_processes == 1 else process_id
    if not (isinstance(rank, int) and isinstance(num_processes, int) and 0 <= rank < num_processes):
        raise DistributedError(
            f"process_id={process_id!r}, num_processes={num_processes!r}: without srun both are needed, and process "
            f"ids are 0 to num_processes - 1, as in {EXAMPLE}. With Slurm: srun python train.py"
        )
    return rank, num_processes


def _coordinator(environ: Mapping[str, str], step: StepEnvironment | None, address: str | None) -> str:
    """Return host and port of process 0."""
    names = ("SLURM_COORDINATOR_ADDRESS", "JAX_COORDINATOR_ADDRESS")
    named = address or next((environ[name] for name in names if environ.get(name)), None)
    if step is None and (named is None or not re.search(r":\w+$", named)):
        raise DistributedError(f"coordinator_address={named!r}: without srun, host:port is needed, as in {EXAMPLE}")
    if step and named is None:
        if step.rank == 0 and step.node != step.coordinator:
            raise DistributedError(
                f"rank 0 runs on {step.node}, and the other ranks look for it on {step.coordinator}, the first of the "
                "step's nodes; --distribution=arbitrary makes such a step. "
                f"Write: export SLURM_COORDINATOR_ADDRESS={step.node}"
            )
        named = step.coordinator
    match = re.fullmatch(r"(\[[^\s\[\]]+\]|[^\s:\[\]/]+)(?::(\w*))?", str(named))
    derived = derived_port(step.job_id, step.step_id) if step else ""
    port = str((match and match[2]) or environ.get("JAX_COORDINATOR_PORT") or derived)
    if not match or not port.isdecimal() or not 1024 <= int(port) <= 65535:
        raise DistributedError(
            f"the coordinator's address is {named!r}, and its port {port!r}: write node1 or node1:54321, with a port "
            "from 1024 to 65535, as in: export SLURM_COORDINATOR_ADDRESS=node1:54321"
        )
    return f"{match[1]}:{port}"


def on_cpus(platforms: str) -> bool:
    """Return whether JAX_PLATFORMS tells JAX to use CPUs first.

    >>> on_cpus("cpu"), on_cpus("cuda,cpu"), on_cpus("")
    (True, False, False)
    """
    return platforms.split(",")[0].strip().lower() == "cpu"


def _cpu_devices(environ: Mapping[str, str], step: StepEnvironment | None, argument: int | None) -> int | None:
    """Return the number of CPU devices: the argument, else what JAX reads itself (None), else the CPUs of the task."""
    if argument is not None:
        if argument < 1:
            raise DistributedError(f"cpu_devices={argument}: a process has 1 or more CPU devices")
        return argument
    if environ.get("JAX_NUM_CPU_DEVICES") or FORCED_DEVICES in environ.get("XLA_FLAGS", ""):
        return None
    if step and step.cpus_per_task is not None:
        return step.cpus_per_task
    on_node = environ.get("SLURM_CPUS_ON_NODE", "")
    if step and on_node.isdigit():
        return max(1, int(on_node) // step.local_world_size)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _gpu_ids(environ: Mapping[str, str], step: StepEnvironment | None) -> tuple[int, ...] | None:
    """Return the numbers of this task's GPUs where it sees those of other tasks, too."""
    if step is None or on_cpus(environ.get("JAX_PLATFORMS", "")) or environ.get("JAX_LOCAL_DEVICE_IDS"):
        return None
    tasks, seen = step.local_world_size, step.gpus_on_node
    if "CUDA_VISIBLE_DEVICES" in environ:
        seen = sum(name not in ("", "-1", "NoDevFiles") for name in environ["CUDA_VISIBLE_DEVICES"].split(","))
    if not seen or seen < step.gpus_on_node or tasks == 1:
        return None  # no GPUs, or Slurm has shared them out already, or there is nobody to share with
    if seen % tasks:
        raise DistributedError(
            f"SLURM_GPUS_ON_NODE={seen}: {seen} GPUs cannot be shared evenly by {tasks} tasks on {step.node}; ask for "
            f"as many tasks as GPUs: #SBATCH --gpus-per-node={seen} --ntasks-per-node={seen}, or leave the GPUs: "
            "export JAX_PLATFORMS=cpu"
        )
    share = seen // tasks
    return tuple(range(share * step.local_rank, share * (step.local_rank + 1)))
