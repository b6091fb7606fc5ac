"""One GPU per process: which devices does each process see?

    srunbook simulate --nodes 1 --ntasks-per-node 2 -- python query_v1.py  # a laptop
    sbatch G4N1p4.sbatch                                                   # one node
    sbatch G4N2p4.sbatch                                                   # two nodes

You should now see, from every process, one local device and the devices of the whole job.
"""

from __future__ import annotations

import os
import socket

import jax


def main() -> None:
    # Before anything else that uses JAX. Under srun it needs no arguments: JAX reads the
    # task's SLURM_* variables, and takes the GPU of the node that has the number SLURM_LOCALID.
    jax.distributed.initialize()
    rank, world = jax.process_index(), jax.process_count()
    host = os.environ.get("SLURMD_NODENAME", socket.gethostname())
    device, version = jax.local_devices()[0], jax.__version__
    print(f"rank {rank}/{world} start host={host} device={device} framework=jax-{version}", flush=True)

    print(f"# Local devices: [ {jax.local_device_count()} ], {jax.local_devices()}")
    print(f"# Global devices: [ {jax.device_count()} ], {jax.devices()}", flush=True)

    print(f"rank {rank}/{world} end steps=0", flush=True)


if __name__ == "__main__":
    main()
