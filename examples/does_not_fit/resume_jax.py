"""Train a small GPT on characters, on all devices of all nodes, and resume from the last checkpoint on any mesh.

python resume_jax.py                                                                    # one process
srunbook simulate --nodes 2 --ntasks-per-node 2 -- python resume_jax.py --mesh shard=4  # four

Without --mesh, the model is divided among all devices. The trained model goes to model-NAME.npz.
"""

import argparse
import fcntl
import math
import os
import re
import shutil
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import jax
import numpy as np
import optax
from jax.experimental import multihost_utils
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from orbax.checkpoint import __version__ as orbax_version
from orbax.checkpoint import v1 as ocp

assert jax.__version_info__ >= (0, 7, 1), f"needs JAX 0.7.1 or newer, found {jax.__version__}"
assert tuple(map(int, orbax_version.split(".")[:2])) >= (0, 12), f"needs Orbax 0.12 or newer, found {orbax_version}"

# Stand-in text: sums of two numbers. Put your own text here.
TEXT = "".join(f"{a}+{b}={a + b}\n" for a in range(100) for b in range(100))
CHARACTERS = sorted(set(TEXT))
WIDTH, HEADS, LAYERS = 64, 4, 4
CONTEXT = 32  # characters that the model sees at once
BATCH_SIZE = 32  # of all devices together
STEPS = 40
RUN = os.environ.get("SLURM_JOB_NAME", "run").replace("/", "-")  # sbatch --job-name=NAME starts another
if "SLURM_ARRAY_TASK_ID" in os.environ:  # each member of an array trains its own model
    RUN += "-" + os.environ["SLURM_ARRAY_TASK_ID"]
CHECKPOINTS = Path("checkpoints", f"resume_jax-{RUN}").absolute()  # delete it to start over

BATCH = P(("data", "shard"))  # which axes of the mesh divide the first dimension of a batch: two of them
BETWEEN = P(("data", "shard"), "tensor")  # the same for what a block hands on: characters are divided as well
COLUMNS, ROWS = P(None, "shard", "tensor"), P(None, "tensor", "shard")
BLOCKS = {  # each parameter of the blocks, all layers in one array: its shape, and what divides each dimension
    **dict.fromkeys(("query", "key", "value"), ((LAYERS, WIDTH, WIDTH), COLUMNS)),
    "out": ((LAYERS, WIDTH, WIDTH), ROWS),
    "up": ((LAYERS, WIDTH, 4 * WIDTH), COLUMNS),
    "up.bias": ((LAYERS, 4 * WIDTH), P(None, "tensor")),
    "down": ((LAYERS, 4 * WIDTH, WIDTH), ROWS),
    **dict.fromkeys(("norm1.bias", "out.bias", "norm2.bias", "down.bias"), ((LAYERS, WIDTH), P())),
    **dict.fromkeys(("norm1.scale", "norm2.scale"), ((LAYERS, WIDTH), P())),
}
MODEL = {"characters": ((len(CHARACTERS), WIDTH), P(None, "shard")), "places": ((CONTEXT, WIDTH), P(None, "shard"))}
MODEL |= BLOCKS | dict.fromkeys(("norm.bias", "norm.scale"), ((WIDTH,), P()))
MODEL |= {"last": ((WIDTH, len(CHARACTERS)), P("shard"))}
LAYOUT = {name: spec for name, (_, spec) in MODEL.items()}
OPTIMIZER = optax.chain(optax.clip_by_global_norm(0.25), optax.adamw(0.003, weight_decay=0.01))


def gpt(mesh):
    rng = np.random.default_rng(0)  # all processes draw the same numbers; each keeps those of its devices
    params = {}
    for name, (shape, spec) in MODEL.items():
        whole = np.full(shape, float(name.endswith("scale"))) if "." in name else rng.normal(size=shape) / WIDTH**0.5
        params[name] = jax.make_array_from_callback(shape, NamedSharding(mesh, spec), whole.__getitem__)
    return params


def normed(x, params, name):
    return jax.nn.standardize(x) * params[f"{name}.scale"] + params[f"{name}.bias"]


def block(x, p):
    x = jax.lax.with_sharding_constraint(x, BETWEEN)
    y = normed(x, p, "norm1")
    heads = [(y @ p[name]).reshape(*x.shape[:2], HEADS, -1) for name in ("query", "key", "value")]
    x = x + jax.nn.dot_product_attention(*heads, is_causal=True).reshape(x.shape) @ p["out"] + p["out.bias"]
    y = normed(jax.lax.with_sharding_constraint(x, BETWEEN), p, "norm2")
    return x + jax.nn.gelu(y @ p["up"] + p["up.bias"], approximate=False) @ p["down"] + p["down.bias"], None


def loss_of(params, batch):
    x = jax.nn.one_hot(batch[:, :-1], len(CHARACTERS)) @ params["characters"] + params["places"]
    x, _ = jax.lax.scan(block, x, {name: params[name] for name in BLOCKS})  # one layer after the other
    scores = normed(x, params, "norm") @ params["last"]
    return optax.softmax_cross_entropy_with_integer_labels(scores, batch[:, 1:]).mean()


@partial(jax.jit, donate_argnums=(0, 1))  # write the new ones over the old ones
def train_step(params, state, batch):
    loss, gradients = jax.value_and_grad(loss_of)(params, batch)
    gradients = jax.lax.with_sharding_constraint(gradients, LAYOUT)  # each device adds up those of its own part
    updates, state = OPTIMIZER.update(gradients, state, params)
    return optax.apply_updates(params, updates), state, loss


@contextmanager
def saving(folder):
    """End this process with one line if the disk is full, say."""
    try:
        yield
    except Exception as error:
        why = "make room there (or is another job saving in it?), then submit the job again"
        print(f"error: cannot save in {folder}: {error!r:.500}; {why}", file=sys.stderr, flush=True)
        os._exit(1)  # at once; srun ends the others


def kept():  # steps that have a checkpoint, newest first; one that is not complete has another name
    return sorted((int(path.name) for path in CHECKPOINTS.glob("*/") if path.name.isdigit()), reverse=True)


@jax.jit
def checksum(tree):  # the sum of all bytes; Orbax has none, and doesn't notice a changed byte
    return sum(jax.lax.bitcast_convert_type(x, "uint8").sum(dtype="uint32") for x in jax.tree.leaves(tree))


def load(state):
    """Return the newest step that all processes can read and what it holds, divided as state is."""
    seen = multihost_utils.process_allgather(np.array([*kept(), 0, 0][:2]))  # by each process
    alone = ocp.Context()
    alone.multiprocessing.active_processes = {jax.process_index()}  # don't wait for one that cannot read it
    for step in [step for step in seen[0] if step and (seen == step).any(axis=1).all()]:
        loaded, total, problem = state, -1, "bytes have changed, or another process cannot read it"
        try:
            with alone:
                loaded, total = ocp.load(CHECKPOINTS / str(step), abstract_state=(state, checksum(state)))
        except Exception as error:
            problem = f"{error!r:.200}"
        if multihost_utils.process_allgather(np.array(int(checksum(loaded)) == int(total))).all():
            return step, loaded
        print(f"checkpoint {step} cannot be read: {problem}", flush=True)
    if seen.any():
        refuse(f"cannot read the checkpoints in {CHECKPOINTS}: has the model changed? Undo that, or delete them")
    return 0, state


def refuse(message):
    """End all processes; one of them says why."""
    if jax.process_index() == 0:
        print(f"error: {message}", file=sys.stderr, flush=True)
    sys.exit(2)


def make_mesh(asked):
    if not re.fullmatch(r"(data|shard|tensor)=[1-9]\d*(,(data|shard|tensor)=[1-9]\d*)*", asked):
        refuse(f"--mesh {asked} is not of the form data=2,shard=2,tensor=2")
    sizes = dict.fromkeys(("data", "shard", "tensor"), 1)
    sizes |= {name: int(size) for name, size in (part.split("=") for part in asked.split(","))}
    groups = sizes["data"] * sizes["shard"]
    if math.prod(sizes.values()) != jax.device_count():
        refuse(f"a mesh of {asked} does not fit {jax.device_count()} devices")
    if HEADS % sizes["tensor"]:
        refuse(f"{HEADS} heads do not divide among {sizes['tensor']} devices")
    if BATCH_SIZE % groups:
        refuse(f"{BATCH_SIZE} sequences do not divide among {groups} groups of devices")
    return jax.make_mesh(tuple(sizes.values()), tuple(sizes), axis_types=(AxisType.Auto,) * 3)


def main():
    rank, world_size = jax.process_index(), jax.process_count()
    device = jax.local_devices()[0]
    print(f"rank {rank}/{world_size} start host={os.uname().nodename} device={device}", flush=True)
    if rank == 0 and device.platform == "cpu" and int(os.environ.get("SLURM_GPUS_ON_NODE", 0)):
        print("warning: Slurm gave this job GPUs and JAX sees none: training on CPUs", flush=True)
    parser = argparse.ArgumentParser()
    parser.add_argument("--mesh", default=f"shard={jax.device_count()}")
    mesh = make_mesh(parser.parse_args().mesh)
    jax.set_mesh(mesh)  # which devices the names in a P stand for

    if rank == 0:
        with saving(CHECKPOINTS):
            CHECKPOINTS.parent.mkdir(exist_ok=True)
            lock = os.open(f"{CHECKPOINTS}.lock", os.O_RDWR | os.O_CREAT)  # until this process ends
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"error: another job is training in {CHECKPOINTS}: wait for it", file=sys.stderr, flush=True)
            os._exit(1)
        except OSError:
            pass  # a file system without locks

    params = gpt(mesh)
    state = OPTIMIZER.init(params)  # divided as the parameters are

    text = np.array([CHARACTERS.index(character) for character in TEXT])
    draw = np.random.RandomState(0)  # the same batches on all processes, and those of ddp.py
    starts = draw.randint(2**32, size=(STEPS, BATCH_SIZE, 1), dtype=np.uint32) % (len(text) - CONTEXT)

    done, (params, state) = load((params, state))
    if done and rank == 0:
        print(f"resumed after step {done}", flush=True)

    for step in range(done + 1, STEPS + 1):
        batch = text[starts[step - 1] + np.arange(CONTEXT + 1)]
        batch = jax.make_array_from_callback(batch.shape, NamedSharding(mesh, BATCH), batch.__getitem__)
        params, state, loss = train_step(params, state, batch)
        if device.platform == "cpu":
            loss.block_until_ready()  # CPU devices that run ahead of each other can lock up
        if step % 10 == 0:
            if rank == 0:
                print(f"step {step}: loss {loss:.6f}", flush=True)
            with saving(CHECKPOINTS):  # a collective: every process calls it
                if rank == 0:  # delete one that could not be read; with overwrite=True, Orbax may wait for ever
                    shutil.rmtree(CHECKPOINTS / str(step), ignore_errors=True)
                ocp.save(CHECKPOINTS / str(step), ((params, state), checksum((params, state))))
                for old in kept()[2:] if rank == 0 else []:
                    shutil.rmtree(CHECKPOINTS / str(old))

    whole = multihost_utils.process_allgather(params, tiled=True)
    if rank == 0:
        with saving(Path.cwd()):
            np.savez(f"model-{RUN}.tmp.npz", **whole)
            Path(f"model-{RUN}.tmp.npz").replace(f"model-{RUN}.npz")
    print(f"rank {rank}/{world_size} end", flush=True)


if __name__ == "__main__":
    if int(os.environ.get("SLURM_NTASKS", 1)) > 1:
        jax.distributed.initialize()  # before anything else that uses JAX
        sys.excepthook = lambda *error: (sys.__excepthook__(*error), os._exit(1))  # or JAX waits for the others
    main()
