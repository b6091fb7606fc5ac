"""One GPU per process: which devices does each process see?

    srunbook simulate --nodes 1 --ntasks-per-node 2 -- python query_v1.py  # a laptop
    sbatch G4N1p4.sbatch                                                   # one node
    sbatch G4N2p4.sbatch                                                   # two nodes

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
    # Before anything else that uses JAX. Under srun it needs no arguments: JAX reads the
    # task's SLURM_* variables, and takes the GPU of the node that has the number SLURM_LOCALID.
    jax.distributed.initialize()
    print("record " + json.dumps(start_record()), flush=True)

    print(f"# Local devices: [ {jax.local_device_count()} ], {jax.local_devices()}")
    print(f"# Global devices: [ {jax.device_count()} ], {jax.devices()}", flush=True)

    end = {"event": "end", "rank": jax.process_index(), "steps": 0, "params_sha256": None}
    print("record " + json.dumps(end), flush=True)


if __name__ == "__main__":
    main()
