"""Checkpoints and stop signals in torch and JAX programs of several processes."""

from __future__ import annotations

import re
import signal

import numpy as np
import pytest

from srunbook import simulate
from srunbook.checkpoint import EXIT_STOPPED, Checkpoints

RANKS = {"nodes": 2, "ntasks_per_node": 2}
ROWS = 12

TORCH = """
import os, signal, sys, time
import numpy as np
import torch, torch.distributed as dist
from srunbook.checkpoint import Checkpoints, Shard, StopSignal
from srunbook.slurm import StepEnvironment
place = StepEnvironment.from_environ()
os.environ["MASTER_ADDR"] = place.coordinator
os.environ["MASTER_PORT"] = str(15000 + place.job_id % 10000)
if place.world_size > 1:
    dist.init_process_group("gloo", rank=place.rank, world_size=place.world_size)
barrier = dist.barrier
"""

JAX = """
import os, signal, sys, time
import numpy as np
import jax, jax.numpy as jnp
if int(os.environ["SLURM_NTASKS"]) > 1:
    jax.distributed.initialize()
from jax.experimental import multihost_utils
from srunbook.checkpoint import Checkpoints, Shard, StopSignal
from srunbook.slurm import StepEnvironment
place = StepEnvironment.from_environ()
barrier = lambda: multihost_utils.sync_global_devices("checkpoint")
"""

MAKE = """
rank, count = place.rank, place.world_size
checkpoints = Checkpoints(sys.argv[1], process_id=rank, num_processes=count, barrier=barrier)
"""

LOOP = """
stop = StopSignal()
victim = int(sys.argv[2])
numbers = [getattr(signal, name) for name in sys.argv[3:]]
deadline = time.monotonic() + 60
step = 0
while time.monotonic() < deadline:
    step += 1
    if step == 5 and rank == victim:
        for number in numbers:
            os.kill(os.getpid(), number)
    time.sleep(0.01)
    if stop.requested(step):
        checkpoints.save(step, {"mine": Shard(np.full(1, step), (slice(rank, rank + 1),), (count,))})
        print(f"stopped at {step} for {stop.signal.name}", flush=True)
        os.kill(os.getpid(), numbers[0])
        stop.leave(requeue=False)
"""


def framework(name):
    """The first lines of a program."""
    pytest.importorskip(name)
    return {"torch": TORCH, "jax": JAX}[name] + MAKE


def stops(result):
    """Step and signal at which each rank said that it stops."""
    found = [re.findall(r"^stopped at (\d+) for (\w+)$", rank.output, re.MULTILINE) for rank in result.ranks]
    assert all(len(lines) == 1 for lines in found), result.output
    return [(int(lines[0][0]), lines[0][1]) for lines in found]


@pytest.mark.parametrize(
    ("numbers", "said"),
    [(["SIGTERM", "SIGTERM"], "SIGTERM"), (["SIGUSR1"], "SIGUSR1"), (["SIGUSR2", "SIGTERM"], "SIGUSR2")],
)
@pytest.mark.parametrize("name", ["torch", "jax"])
def test_signal_to_one_rank(program, tmp_path, name, numbers, said):
    """A signal to one rank, also when another follows, stops all ranks at the same step, with one checkpoint."""
    command = [*program(framework(name) + LOOP), str(tmp_path / "saved"), "2", *numbers]

    result = simulate.run(command, **RANKS, timeout=90)

    ((step, stopped_for),) = set(stops(result))
    assert stopped_for == said
    assert step == 5 if name == "torch" else step >= 5
    assert not result.timed_out
    assert result.returncode == EXIT_STOPPED, result.failure
    assert Checkpoints(tmp_path / "saved").steps() == [step]
    assert Checkpoints(tmp_path / "saved").restore().tensors["mine"].tolist() == [step] * 4


def test_without_agreement(program, tmp_path):
    """Without the agreement, only the rank that got the signal stops, and it waits for the others in vain."""
    alone = framework("torch") + LOOP.replace("stop.requested(step)", "stop._noted")
    command = [*program(alone), str(tmp_path / "saved"), "2", "SIGTERM"]

    result = simulate.run(command, **RANKS, timeout=15)

    assert result.timed_out or result.returncode != EXIT_STOPPED
    assert Checkpoints(tmp_path / "saved").steps() == []


def test_made_before_initialize(program, tmp_path):
    """A StopSignal made before jax.distributed.initialize(), which takes SIGTERM from it, says so."""
    pytest.importorskip("jax")
    command = program(
        """
        import jax
        from srunbook.checkpoint import StopSignal
        stop = StopSignal()
        jax.distributed.initialize()
        try:
            stop.requested(1)
        except RuntimeError as error:
            print(error, flush=True)
        """
    )

    result = simulate.run(command, nodes=2, timeout=60)

    assert result.output.count("make StopSignal after jax.distributed.initialize()") == 2


def test_jax_without_its_own_notifier(program, tmp_path):
    """With JAX's own watch for SIGTERM switched off, ranks still agree."""
    command = [*program(framework("jax") + LOOP), str(tmp_path / "saved"), "1", "SIGTERM"]

    result = simulate.run(command, nodes=2, timeout=90, env={"JAX_ENABLE_PREEMPTION_SERVICE": "false"})

    assert set(stops(result)) == {(5, "SIGTERM")}


SAVE_TORCH = """
rows = slice(ROWS * rank // count, ROWS * (rank + 1) // count)
full = torch.arange(ROWS * 3, dtype=torch.bfloat16).reshape(ROWS, 3)
tensors = {"rows": Shard(full[rows], (rows,), full.shape), "same": torch.full((2,), 7.0)}
"""

RESTORE_TORCH = """
restored = checkpoints.restore(expect={"rows": full, "same": (2,)}).tensors
print("right", torch.equal(restored["rows"], full), torch.equal(restored["same"], torch.full((2,), 7.0)), flush=True)
"""

SAVE_JAX = """
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((jax.device_count(),), ("d",))
full = np.arange(ROWS * 3, dtype=np.float32).reshape(ROWS, 3)
spread = NamedSharding(mesh, P("d"))
make = lambda array, sharding: jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])
tensors = {
    "rows": make(full, spread).astype(jnp.bfloat16),
    "same": make(np.full(2, 7.0, np.float32), NamedSharding(mesh, P())),
}
"""

RESTORE_JAX = """
restored = checkpoints.restore(expect=tensors).tensors
again = make(restored["rows"], spread)
sums = jax.jit(lambda a, b: jnp.array_equal(a, b))(again, tensors["rows"])
print("right", bool(sums), restored["same"].tolist() == [7.0, 7.0], flush=True)
"""

SAVE = {"torch": SAVE_TORCH, "jax": SAVE_JAX}
RESTORE = {"torch": RESTORE_TORCH, "jax": RESTORE_JAX}


@pytest.mark.parametrize(("name", "saved_by"), [("jax", 1), ("jax", 2), ("jax", 4), ("torch", 4)])
def test_sharded_on_other_numbers(program, tmp_path, name, saved_by):
    """A state sharded over some processes is restored on 1, 2 and 4, equal on each rank."""
    start = framework(name) + f"ROWS = {ROWS}\n" + SAVE[name]
    # gloo may abort a process that ends by itself.
    leave = "\nif count > 1: barrier()\nos._exit(0)\n" if name == "torch" else ""
    save = program(f"{start}checkpoints.save(3, tensors, background=True)\ncheckpoints.wait(){leave}\n", "save.py")
    restore = program(start + RESTORE[name] + leave, "restore.py")
    directory = str(tmp_path / "saved")

    result = simulate.run([*save, directory], ntasks_per_node=saved_by, timeout=90)
    assert result.returncode == 0, result.failure
    for restored_by in (1, 2, 4):
        result = simulate.run([*restore, directory], ntasks_per_node=restored_by, timeout=90)

        assert result.returncode == 0, result.failure
        assert [rank.stdout.splitlines()[-1] for rank in result.ranks] == ["right True True"] * restored_by
    assert len(list((tmp_path / "saved").glob("*/*.safetensors"))) == saved_by


KILL = """
tensors = {"rows": Shard(np.full(1, 2 * count), (slice(rank, rank + 1),), (count,))}
checkpoints.save(1, tensors)
count_calls, kill_at = 0, int(sys.argv[2])

def counting(name):
    real = getattr(os, name)
    def counted(*arguments, **options):
        global count_calls
        count_calls += 1
        if rank == int(sys.argv[3]) and count_calls == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **options)
    setattr(os, name, counted)

for name in ("write", "fsync", "rename"):
    counting(name)
checkpoints.save(2, tensors)
print("saved", flush=True)
"""


@pytest.mark.parametrize(("victim", "kill_at"), [(1, 1), (1, 5), (0, 2), (0, 9)])
def test_a_rank_is_killed_within_a_save(program, tmp_path, victim, kill_at):
    """When a rank is killed while all save, the other ends with an error, and the checkpoint before is whole."""
    command = [*program(framework("torch") + KILL), str(tmp_path / "saved"), str(kill_at), str(victim)]

    result = simulate.run(command, nodes=2, timeout=60)

    assert result.ranks[victim].signal == signal.SIGKILL
    assert "saved" not in result.output
    assert Checkpoints(tmp_path / "saved").restore().step == 1
    assert np.array_equal(Checkpoints(tmp_path / "saved").restore().tensors["rows"], [4, 4])
