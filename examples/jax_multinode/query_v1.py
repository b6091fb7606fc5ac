"""One GPU per process: which devices does each process see?

    srunbook simulate --nodes 1 --ntasks-per-node 2 -- python query_v1.py  # a laptop: no Slurm, no GPU
    sbatch G4N1p4.sbatch                                                   # one node, four processes
    sbatch G4N2p4.sbatch                                                   # two nodes, two processes on each

You should now see, from every process, one local device and the devices of the whole job.
"""

from __future__ import annotations

import json
import os
import socket

import jax


def start_record() -> dict[str, object]:
    """Who this process is; one line of it makes a log readable, and checkable, later."""
    on_cpu = jax.default_backend() == "cpu"
    return {
        "event": "start",
        "rank": jax.process_index(),
        "world_size": jax.process_count(),
        "local_rank": int(os.environ.get("SLURM_LOCALID", "0")),
        "host": os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
        "pid": os.getpid(),
        "backend": "gloo" if on_cpu else "nccl",
        "device": "cpu" if on_cpu else "cuda",
        "framework": f"jax {jax.__version__}",
        "job": os.environ.get("SLURM_JOB_ID"),
    }


def main() -> None:
    # Under srun this needs no arguments: JAX reads the SLURM_* variables of the task, and takes the one
    # GPU of the node whose number is SLURM_LOCALID. It has to come before anything else that uses JAX.
    jax.distributed.initialize()
    print("record " + json.dumps(start_record()), flush=True)

    print(f"# Local devices: [ {jax.local_device_count()} ], {jax.local_devices()}", flush=True)
    print(f"# Global devices: [ {jax.device_count()} ], {jax.devices()}", flush=True)

    end = {"event": "end", "rank": jax.process_index(), "steps": 0, "params_sha256": None}
    print("record " + json.dumps(end), flush=True)


if __name__ == "__main__":
    main()
