"""Train a small network on all devices of all nodes, GPUs or CPUs, and print how fast that was.

srunbook simulate --nodes 2 --ntasks-per-node 2 -- python throughput_jax.py
sbatch data_parallel.sbatch throughput_jax.py
"""

import os
from pathlib import Path
from time import perf_counter

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

STEPS = 100
WARM_UP = 20  # steps that don't count
PEAK = 494e12  # EDIT: FLOP/s of your GPU in the precision of your program; an H100 in TF32
BATCH_SIZE = 64  # of all devices together
LEARNING_RATE = 0.05


def loss_of(params, images, labels):
    hidden = jnp.tanh(images @ params["w1"] + params["b1"])
    scores = jax.nn.log_softmax(hidden @ params["w2"] + params["b2"])
    return -jnp.mean(jnp.sum(jax.nn.one_hot(labels, 10) * scores, axis=1))


@jax.jit
def train_step(params, images, labels):
    loss, gradient = jax.value_and_grad(loss_of)(params, images, labels)
    return jax.tree.map(lambda p, g: p - LEARNING_RATE * g, params, gradient), loss


def main():
    rank, world_size = jax.process_index(), jax.process_count()
    devices, own = jax.devices(), jax.local_devices()
    host = os.uname().nodename
    print(f"rank {rank}/{world_size} start host={host} device={own[0]}", flush=True)
    mesh = jax.make_mesh((len(devices),), ("batch",))
    split = NamedSharding(mesh, P("batch"))  # each device holds its own rows
    copies = NamedSharding(mesh, P())  # each device holds the whole

    share = max(1, BATCH_SIZE // len(devices))
    mine = share * len(own)  # rows of this process
    if rank == 0:
        total = share * len(devices)
        print(f"each step: {len(devices)} devices x {share} images = {total}", flush=True)
        if own[0].platform == "cpu" and int(os.environ.get("SLURM_GPUS_ON_NODE", 0)):
            print("warning: Slurm gave this job GPUs and JAX sees none: training on CPUs", flush=True)

    # Stand-in data: ten patterns under noise. Put your own dataset here.
    rng = np.random.default_rng(0)
    labels = rng.integers(10, size=2048)
    images = rng.normal(size=(10, 256))[labels] + 3 * rng.normal(size=(2048, 256))
    images = images.astype(np.float32)

    params = {"w1": rng.normal(size=(256, 64)) / 16, "b1": np.zeros(64)}
    params |= {"w2": rng.normal(size=(64, 10)) / 8, "b2": np.zeros(10)}
    params = jax.device_put(jax.tree.map(np.float32, params), copies)

    started = perf_counter()
    for step in range(1, STEPS + 1):
        # The step's number is the seed: a step sees the same rows in each run.
        rows = np.random.default_rng(step).choice(len(images), share * len(devices))
        rows = rows[rank * mine : (rank + 1) * mine]
        x = jax.make_array_from_process_local_data(split, images[rows])
        y = jax.make_array_from_process_local_data(split, labels[rows])
        params, loss = train_step(params, x, y)
        if own[0].platform == "cpu":
            loss.block_until_ready()  # CPU devices that run ahead of each other can lock up
        if step in (WARM_UP, STEPS):
            loss.block_until_ready()  # a GPU computes while Python runs on
            started, seconds = perf_counter(), perf_counter() - started
        if step % 20 == 0 and rank == 0:
            print(f"step {step}: loss {loss:.6f}", flush=True)

    seconds /= STEPS - WARM_UP  # of a step
    flops = train_step.lower(params, x, y).compile().cost_analysis()["flops"]  # of one device's share
    speed = flops / seconds
    if rank == 0:
        print(f"{share * len(devices) / seconds:.0f} images/s, {share / seconds:.0f} images/s on each device")
        mfu = "" if own[0].platform == "cpu" else f", MFU {speed / PEAK:.1%}"
        print(f"{speed / 1e9:.2f} GFLOP/s on each device{mfu}")
        np.savez("model.tmp.npz", **params)
        Path("model.tmp.npz").replace("model.npz")
    print(f"rank {rank}/{world_size} end", flush=True)


if __name__ == "__main__":
    if int(os.environ.get("SLURM_NTASKS", 1)) > 1:
        jax.distributed.initialize()  # before anything else that uses JAX
    main()
