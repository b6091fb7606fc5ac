"""Choose the devices that a process takes, and count the connections that they need."""

from __future__ import annotations

import contextlib
import os
import re
import resource
from collections.abc import Mapping, Sequence
from pathlib import Path

from srunbook._connections import OTHER_FILES, connections, most_devices
from srunbook.distributed._arguments import checked_device_ids
from srunbook.distributed._errors import DistributedError
from srunbook.slurm import StepEnvironment

FORCED_DEVICES = "--xla_force_host_platform_device_count="

ACCELERATORS = ("/dev/nvidiactl", "/dev/kfd", "/dev/accel0")
"""Where one of these exists, JAX may use other devices than CPUs."""


def on_cpus(environ: Mapping[str, str]) -> bool:
    """Return whether JAX is told to use CPUs.

    >>> on_cpus({"JAX_PLATFORMS": "cpu"}), on_cpus({"JAX_PLATFORMS": "cuda,cpu"}), on_cpus({})
    (True, False, False)
    """
    return environ.get("JAX_PLATFORMS", "").split(",")[0].strip().lower() == "cpu"


def cpu_devices(environ: Mapping[str, str], step: StepEnvironment | None, argument: int | None) -> int | None:
    """Return the number of CPU devices to give to JAX, or None where JAX reads it from the environment itself.

    The order is: argument, JAX_NUM_CPU_DEVICES, XLA_FLAGS (JAX reads both), the CPUs of the task, those of the process.
    """
    if argument is not None:
        return argument
    if environ.get("JAX_NUM_CPU_DEVICES") or FORCED_DEVICES in environ.get("XLA_FLAGS", ""):
        return None
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if step is None:
        return usable
    if step.cpus_per_task is not None:
        return step.cpus_per_task
    on_node = environ.get("SLURM_CPUS_ON_NODE", "")
    return max(1, int(on_node) // step.local_world_size) if on_node.isdigit() else usable


def gpu_ids(
    environ: Mapping[str, str], step: StepEnvironment | None, argument: Sequence[int] | None
) -> tuple[int, ...] | None:
    """Return the numbers of this task's GPUs among those that it sees; None on CPUs, and where it sees only its own.

    Raises:
        DistributedError: A number is out of range, or the GPUs of the node cannot be shared evenly by its tasks.
    """
    ids, where = None, "local_device_ids"
    if argument is not None:
        ids = checked_device_ids(argument)
    elif environ.get("JAX_LOCAL_DEVICE_IDS"):
        where, text = "JAX_LOCAL_DEVICE_IDS", environ["JAX_LOCAL_DEVICE_IDS"]
        ids = tuple(map(int, text.split(","))) if re.fullmatch(r"\d+(,\d+)*", text, re.ASCII) else ()
        if not ids or len(set(ids)) < len(ids):
            raise DistributedError(f"JAX_LOCAL_DEVICE_IDS={text!r}: it is a list of different numbers, as in 0,1")
    if on_cpus(environ):
        return None
    seen = step.gpus_on_node if step else None
    if "CUDA_VISIBLE_DEVICES" in environ:
        names = environ["CUDA_VISIBLE_DEVICES"].split(",")
        seen = sum(name not in ("", "-1", "NoDevFiles") for name in names)
    if ids is not None:
        if seen and max(ids) >= seen:
            raise DistributedError(
                f"{where} names GPU {max(ids)}, and this process sees {seen}, numbered from 0; "
                f"leave it out, or let it see all GPUs of its node: srun --gpus-per-node={max(ids) + 1} python train.py"
            )
        return ids
    if step is None or not seen or seen < step.gpus_on_node or step.local_world_size == 1:
        return None  # no GPUs, or Slurm has shared them out already, or there is nobody to share with
    tasks = step.local_world_size
    if seen % tasks:
        raise DistributedError(
            f"SLURM_GPUS_ON_NODE={seen}: {seen} GPUs cannot be shared evenly by {tasks} tasks on {step.node}; "
            f"ask for a multiple of the tasks: srun --ntasks-per-node={tasks} --gpus-per-node={tasks} python train.py, "
            "or leave them: export JAX_PLATFORMS=cpu"
        )
    share = seen // tasks
    return tuple(range(share * step.local_rank, share * (step.local_rank + 1)))


def allow_connections(processes: int, devices: int | None, platforms: str) -> None:
    """Raise the limit on open files as far as allowed, and reject devices that need more connections than that.

    On CPUs each device is connected to each other device of all processes, and a connection is an open file.

    Args:
        processes: Number of processes, all with the same number of devices.
        devices: Number of CPU devices of each, or None where it is not known.
        platforms: What JAX is told to use, as in JAX_PLATFORMS.

    Raises:
        DistributedError: The hard limit is too small. The message names a number of devices that fits.
    """
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed != most:
        with contextlib.suppress(OSError, ValueError):  # then the soft limit is what there is
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if devices is None or limit == resource.RLIM_INFINITY:
        return
    if not on_cpus({"JAX_PLATFORMS": platforms}) and (platforms or any(Path(name).exists() for name in ACCELERATORS)):
        return
    left = limit - _open_files() - OTHER_FILES
    if connections(processes, devices) <= left:
        return
    fewer = most_devices(processes, devices, left)
    way_out = (
        f"Use fewer devices per process: initialize_distributed(cpu_devices={fewer}), or export "
        f"JAX_NUM_CPU_DEVICES={fewer}; srun python train.py, or srunbook generate --set devices_per_process={fewer}"
        if fewer
        else "Use fewer processes, as in: srun --ntasks=4 python train.py, or ask for a higher limit"
    )
    raise DistributedError(
        f"{devices} CPU devices in each of {processes} processes need {connections(processes, devices)} connections in "
        f"each process, and it may open {limit} files (ulimit -Hn), of which {max(0, left)} are left for them. "
        f"{way_out}."
    )


def forced_devices(flags: str) -> int | None:
    """Return the number of CPU devices that XLA_FLAGS asks for, or None.

    >>> forced_devices("--xla_a=1 --xla_force_host_platform_device_count=8"), forced_devices("")
    (8, None)
    """
    found: list[str] = re.findall(re.escape(FORCED_DEVICES) + r"(\d+)", flags)
    return int(found[-1]) if found else None


def _open_files() -> int:
    try:
        return len(os.listdir("/dev/fd"))  # noqa: PTH208 - only their number counts
    except OSError:
        return 0
