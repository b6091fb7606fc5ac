"""Data-parallel training: the same losses on one process and on many.

    srunbook simulate -- python train_data_parallel.py                                # one process
    srunbook simulate --nodes 2 --ntasks-per-node 2 -- python train_data_parallel.py  # four
    sbatch train_data_parallel.sbatch                                                 # two nodes

You should now see the same losses from every process, however many there are.
The global batch stays at 64 rows: more processes mean fewer rows for each.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import socket
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

GLOBAL_BATCH = 64
FEATURES = 16
HIDDEN = 32
LEARNING_RATE = 0.1


def rows_of_step(step: int, first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Some rows of the batch of a step: the same numbers, whoever asks for them."""
    rows = np.random.default_rng(step).normal(size=(GLOBAL_BATCH, FEATURES))
    targets = np.sin(rows[:, :1]) + 0.5 * rows[:, 1:2]
    mine = slice(first, first + count)
    return rows[mine].astype(np.float32), targets[mine].astype(np.float32)


def initial_parameters() -> dict[str, np.ndarray]:
    """The same numbers in every process, because the seed is the same."""
    rng = np.random.default_rng(0)
    inner = rng.normal(size=(FEATURES, HIDDEN), scale=FEATURES**-0.5)
    outer = rng.normal(size=(HIDDEN, 1), scale=HIDDEN**-0.5)
    return {"inner": inner.astype(np.float32), "outer": outer.astype(np.float32)}


def loss(parameters, rows, targets):
    """Mean squared error over the global batch; nothing here speaks of processes."""
    predicted = jnp.tanh(rows @ parameters["inner"]) @ parameters["outer"]
    return jnp.mean((predicted - targets) ** 2)


def main() -> None:
    parser = argparse.ArgumentParser(description="Data-parallel training.")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--every", type=int, default=10, help="steps between printed losses")
    options = parser.parse_args()

    jax.distributed.initialize()
    rank, world = jax.process_index(), jax.process_count()
    host = os.environ.get("SLURMD_NODENAME", socket.gethostname())
    backend = "gloo" if jax.default_backend() == "cpu" else "nccl"
    job = f" job={os.environ['SLURM_JOB_ID']}" if "SLURM_JOB_ID" in os.environ else ""
    print(
        f"rank {rank}/{world} start host={host} local_rank={os.environ.get('SLURM_LOCALID', 0)} pid={os.getpid()} "
        f"device={jax.local_devices()[0]} backend={backend} framework=jax-{jax.__version__}{job}",
        flush=True,
    )

    mesh = jax.make_mesh((jax.device_count(),), ("batch",))
    split = NamedSharding(mesh, P("batch"))  # rows of the batch are shared out
    whole = NamedSharding(mesh, P())  # parameters stand on every device
    mine = GLOBAL_BATCH // world
    if GLOBAL_BATCH % jax.device_count():
        raise ValueError(f"{GLOBAL_BATCH} rows for {jax.device_count()} devices: take 1, 2, 4, ... 64")

    @partial(jax.jit, out_shardings=(whole, whole), donate_argnums=0)
    def train_step(parameters, rows, targets):
        # The mean over all rows makes this an all-reduce; the compiler puts it in.
        value, gradient = jax.value_and_grad(loss)(parameters, rows, targets)
        return jax.tree.map(lambda p, g: p - LEARNING_RATE * g, parameters, gradient), value

    parameters, value = jax.device_put(initial_parameters(), whole), float("nan")
    for step in range(options.steps):
        rows, targets = rows_of_step(step, mine * rank, mine)
        rows = jax.make_array_from_process_local_data(split, rows)
        targets = jax.make_array_from_process_local_data(split, targets)
        parameters, value = train_step(parameters, rows, targets)
        if step % options.every == 0 or step == options.steps - 1:
            print(f"step {step:3d} loss {float(value):.7f}", flush=True)

    numbers = b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(parameters))
    params = hashlib.sha256(numbers).hexdigest()[:12]
    print(f"rank {rank}/{world} end steps={options.steps} loss={value:.4f} params={params}", flush=True)


if __name__ == "__main__":
    main()
