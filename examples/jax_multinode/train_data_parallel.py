"""Data-parallel training: the same losses on one process and on many.

    srunbook simulate --nodes 1 --ntasks-per-node 1 -- python train_data_parallel.py  # a laptop: one process
    srunbook simulate --nodes 2 --ntasks-per-node 2 -- python train_data_parallel.py  # a laptop: four processes
    sbatch train_data_parallel.sbatch                                                 # two nodes, eight GPUs

You should now see the same losses from every process, whatever their number, up to rounding.
The global batch stays at 64 rows: more processes mean fewer rows for each, not a larger batch.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import socket

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

GLOBAL_BATCH = 64
FEATURES = 16
HIDDEN = 32
LEARNING_RATE = 0.1


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


def rows_of_step(step: int, first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows `first` to `first + count` of the batch of a step; the same rows whoever asks for them."""
    rows = np.random.default_rng(step).normal(size=(GLOBAL_BATCH, FEATURES)).astype(np.float32)
    targets = np.sin(rows[:, :1]) + 0.5 * rows[:, 1:2]
    return rows[first : first + count], targets[first : first + count]


def initial_parameters() -> dict[str, np.ndarray]:
    """The same numbers in every process, because the seed is the same."""
    rng = np.random.default_rng(0)
    return {
        "inner": rng.normal(size=(FEATURES, HIDDEN), scale=FEATURES**-0.5).astype(np.float32),
        "outer": rng.normal(size=(HIDDEN, 1), scale=HIDDEN**-0.5).astype(np.float32),
    }


def loss(parameters: dict[str, jax.Array], rows: jax.Array, targets: jax.Array) -> jax.Array:
    """Mean squared error over the global batch; nothing here speaks of processes."""
    predicted = jnp.tanh(rows @ parameters["inner"]) @ parameters["outer"]
    return jnp.mean((predicted - targets) ** 2)


def main() -> None:
    parser = argparse.ArgumentParser(description="Data-parallel training on all devices of the job.")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--every", type=int, default=10, help="steps from one printed loss to the next")
    options = parser.parse_args()
    steps = options.steps

    jax.distributed.initialize()
    print("record " + json.dumps(start_record()), flush=True)

    mesh = jax.make_mesh((jax.device_count(),), ("batch",))
    split = NamedSharding(mesh, P("batch"))  # rows of the batch are shared out
    whole = NamedSharding(mesh, P())  # parameters stand on every device
    mine = GLOBAL_BATCH // jax.process_count()
    if GLOBAL_BATCH % jax.device_count():
        raise SystemExit(f"{GLOBAL_BATCH} rows cannot be shared by {jax.device_count()} devices; take 1, 2, 4, ... 64")

    @jax.jit(out_shardings=(whole, whole), donate_argnums=0)
    def train_step(parameters, rows, targets):
        value, gradient = jax.value_and_grad(loss)(parameters, rows, targets)  # the all-reduce happens in here
        return jax.tree.map(lambda p, g: p - LEARNING_RATE * g, parameters, gradient), value

    parameters = jax.device_put(initial_parameters(), whole)
    for step in range(steps):
        batch = rows_of_step(step, mine * jax.process_index(), mine)
        rows, targets = (jax.make_array_from_process_local_data(split, part) for part in batch)
        parameters, value = train_step(parameters, rows, targets)
        if step % options.every == 0 or step == steps - 1:
            print(f"step {step:3d} loss {float(value):.7f}", flush=True)

    digest = hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(parameters))).hexdigest()
    end = {"event": "end", "rank": jax.process_index(), "steps": steps, "params_sha256": digest}
    print("record " + json.dumps(end), flush=True)


if __name__ == "__main__":
    main()
