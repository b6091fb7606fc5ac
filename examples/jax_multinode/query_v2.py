"""Several GPUs per process: which devices does each process see?

    srunbook simulate --nodes 1 --gpus-per-node 2 -- python query_v2.py  # a laptop
    sbatch G4N2p2.sbatch                                                 # two nodes

You should now see, from every process, all GPUs of its node as local devices.
Left alone, JAX takes one GPU for each process, and the rest of the node stays idle.
On a CPU the numbers have no effect: JAX_NUM_CPU_DEVICES says how many devices there are.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping

import jax


def tasks_on_nodes(layout: str) -> list[int]:
    """Reads Slurm's short form of a layout: `2(x3),1` is [2, 2, 2, 1]."""
    counts = []
    for part in layout.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if match is None:
            raise ValueError(f"the task layout is {layout!r}; it reads like 2(x3),1")
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


def gpus_in_sight(environ: Mapping[str, str]) -> int:
    """Number of GPUs that this process can see, by the best evidence there is."""
    if "CUDA_VISIBLE_DEVICES" in environ:  # what Slurm gave to this very task
        names = environ["CUDA_VISIBLE_DEVICES"].split(",")
        return sum(name not in ("", "-1", "NoDevFiles") for name in names)
    if "SLURM_GPUS_ON_NODE" in environ:  # always a plain number
        return int(environ["SLURM_GPUS_ON_NODE"])
    typed = environ.get("SLURM_GPUS_PER_NODE", "0")  # 4, a100:4, a100:2,v100:1 or a100
    counts = [part.split(":")[-1] for part in typed.split(",")]
    return sum(int(count) if count.isdigit() else 1 for count in counts)


def local_device_ids(environ: Mapping[str, str]) -> list[int]:
    """Numbers of the GPUs that belong to this process, counted among those that it can see.

    Returns:
        The numbers; an empty list where there is no GPU, which JAX reads as "all there is".

    Raises:
        ValueError: The GPUs of the node cannot be shared evenly by its tasks.
    """
    gpus = gpus_in_sight(environ)
    if gpus < int(environ.get("SLURM_GPUS_ON_NODE", "0")):
        return list(range(gpus))  # --gpus-per-task: Slurm has shared them out already
    layout = tasks_on_nodes(environ.get("SLURM_STEP_TASKS_PER_NODE", "1"))
    tasks = layout[int(environ.get("SLURM_NODEID", "0"))]
    if gpus % tasks:
        raise ValueError(
            f"{gpus} GPUs cannot be shared evenly by {tasks} tasks on a node; ask for a "
            f"multiple of the tasks: --ntasks-per-node={tasks} --gpus-per-node={tasks}"
        )
    share = gpus // tasks
    first = share * int(environ.get("SLURM_LOCALID", "0"))
    return list(range(first, first + share))


def main() -> None:
    ids = local_device_ids(os.environ)
    jax.distributed.initialize(local_device_ids=ids)  # srun tells the rest
    rank, world = jax.process_index(), jax.process_count()
    host = os.environ.get("SLURMD_NODENAME", socket.gethostname())
    device, version = jax.local_devices()[0], jax.__version__
    print(f"rank {rank}/{world} start host={host} device={device} framework=jax-{version}", flush=True)

    print(f"# GPU numbers of this process: {ids}", flush=True)
    print(f"# Local devices: [ {jax.local_device_count()} ], {jax.local_devices()}")
    print(f"# Global devices: [ {jax.device_count()} ], {jax.devices()}", flush=True)

    print(f"rank {rank}/{world} end steps=0", flush=True)


if __name__ == "__main__":
    main()
