"""Train a small network on all devices, and resume from the last checkpoint.

python resume.py                                                     # one process
srunbook simulate --nodes 2 --ntasks-per-node 2 -- python resume.py  # four
sbatch data_parallel.sbatch resume.py                                # two nodes
"""

import fcntl
import os
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from orbax.checkpoint import __version__ as orbax_version
from orbax.checkpoint import v1 as ocp

assert jax.__version_info__ >= (0, 7), f"needs JAX 0.7 or newer, found {jax.__version__}"
assert tuple(map(int, orbax_version.split(".")[:2])) >= (0, 12), f"needs Orbax 0.12 or newer, found {orbax_version}"
STEPS = 100
BATCH_SIZE = 64  # of all devices together
LEARNING_RATE = 0.05
RUN = os.environ.get("SLURM_JOB_NAME", "run").replace("/", "-")  # sbatch --job-name=NAME starts another
if "SLURM_ARRAY_TASK_ID" in os.environ:  # each member of an array trains its own model
    RUN += "-" + os.environ["SLURM_ARRAY_TASK_ID"]
CHECKPOINTS = Path("checkpoints", f"resume-{RUN}").absolute()


def loss_of(params, images, labels):
    hidden = jnp.tanh(images @ params["w1"] + params["b1"])
    scores = jax.nn.log_softmax(hidden @ params["w2"] + params["b2"])
    return -jnp.mean(jnp.sum(jax.nn.one_hot(labels, 10) * scores, axis=1))


@jax.jit
def train_step(params, images, labels):
    loss, gradient = jax.value_and_grad(loss_of)(params, images, labels)
    return jax.tree.map(lambda p, g: p - LEARNING_RATE * g, params, gradient), loss


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


def load(params):
    """Return the newest step that all processes can read and its parameters, laid out as params is."""
    seen = multihost_utils.process_allgather(np.array([*kept(), 0, 0][:2]))  # by each process
    alone = ocp.Context()
    alone.multiprocessing.active_processes = {jax.process_index()}  # don't wait for one that cannot read it
    for step in [step for step in seen[0] if step and (seen == step).any(axis=1).all()]:
        loaded, total, problem = params, -1, "bytes have changed, or another process cannot read it"
        try:
            with alone:
                loaded, total = ocp.load(CHECKPOINTS / str(step), abstract_state=(params, checksum(params)))
        except Exception as error:
            problem = f"{error!r:.200}"
        if multihost_utils.process_allgather(np.array(int(checksum(loaded)) == int(total))).all():
            return step, loaded
        print(f"checkpoint {step} cannot be read: {problem}", flush=True)
    if seen.any():
        why = "has the model changed? Undo that, or delete them"
        sys.exit(f"error: cannot read the checkpoints in {CHECKPOINTS}: {why}" if jax.process_index() == 0 else 1)
    return 0, params


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
        print(f"saving in checkpoints/{CHECKPOINTS.name}: let no other job do so now", flush=True)
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

    done, params = load(params)
    if done and rank == 0:
        print(f"resumed after step {done}", flush=True)

    for step in range(done + 1, STEPS + 1):
        # The step's number is the seed: a step sees the same rows in each run.
        rows = np.random.default_rng(step).choice(len(images), share * len(devices))
        rows = rows[rank * mine : (rank + 1) * mine]
        x = jax.make_array_from_process_local_data(split, images[rows])
        y = jax.make_array_from_process_local_data(split, labels[rows])
        params, loss = train_step(params, x, y)
        if own[0].platform == "cpu":
            loss.block_until_ready()  # CPU devices that run ahead of each other can lock up
        if step % 20 == 0:
            if rank == 0:
                print(f"step {step}: loss {loss:.6f}", flush=True)
            with saving(CHECKPOINTS):  # a collective: every process calls it
                if rank == 0:  # delete one that could not be read; with overwrite=True, Orbax may wait for ever
                    shutil.rmtree(CHECKPOINTS / str(step), ignore_errors=True)
                ocp.save(CHECKPOINTS / str(step), (params, checksum(params)))
                for old in kept()[2:] if rank == 0 else []:
                    shutil.rmtree(CHECKPOINTS / str(old))

    if rank == 0:
        with saving(Path.cwd()):
            np.savez(f"model-{RUN}.tmp.npz", **params)
            Path(f"model-{RUN}.tmp.npz").replace(f"model-{RUN}.npz")
    print(f"rank {rank}/{world_size} end", flush=True)


if __name__ == "__main__":
    if int(os.environ.get("SLURM_NTASKS", 1)) > 1:
        jax.distributed.initialize()  # before anything else that uses JAX
        sys.excepthook = lambda *error: (sys.__excepthook__(*error), os._exit(1))  # or JAX waits for the others
    main()
