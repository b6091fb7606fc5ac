"""Checkpoints and stop signals in torch and JAX programs of several processes."""

from __future__ import annotations

import re
import signal
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from support.hanging import HUNG, WATCH

from srunbook import simulate
from srunbook.checkpoint import EXIT_STOPPED, Checkpoints

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
step = 0
while True:
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
    """Return the first lines of a program."""
    pytest.importorskip(name)
    return {"torch": TORCH, "jax": JAX}[name] + MAKE


def stops(result):
    """Return step and signal at which each rank said that it stops."""
    found = [re.findall(r"^stopped at (\d+) for (\w+)$", rank.output, re.MULTILINE) for rank in result.ranks]
    assert all(len(lines) == 1 for lines in found), result.output
    return [(int(lines[0][0]), lines[0][1]) for lines in found]


full = pytest.mark.full


@pytest.mark.parametrize(
    ("name", "numbers", "said", "layout"),
    [
        ("torch", ["SIGUSR2", "SIGTERM"], "SIGUSR2", "1,1"),
        ("jax", ["SIGTERM", "SIGTERM"], "SIGTERM", "1,1"),
        pytest.param("jax", ["SIGUSR1"], "SIGUSR1", "1,1", marks=full),
        *(
            pytest.param(name, *signals, "2,2", marks=full)
            for name in ("torch", "jax")
            for signals in (
                (["SIGTERM", "SIGTERM"], "SIGTERM"),
                (["SIGUSR1"], "SIGUSR1"),
                (["SIGUSR2", "SIGTERM"], "SIGUSR2"),
            )
        ),
    ],
)
def test_signal_to_one_rank(program, tmp_path, name, numbers, said, layout):
    """A signal to one rank, also when another follows, stops all ranks at the same step, with one checkpoint."""
    command = [*program(framework(name) + LOOP), str(tmp_path / "saved"), "1", *numbers]

    result = simulate.run(command, ntasks_per_node=layout)

    ((step, stopped_for),) = set(stops(result))
    assert stopped_for == said
    assert step == 5 if name == "torch" else step >= 5
    assert not result.timed_out
    assert result.returncode == EXIT_STOPPED, result.failure
    assert Checkpoints(tmp_path / "saved").steps() == [step]
    assert Checkpoints(tmp_path / "saved").restore().tensors["mine"].tolist() == [step] * len(result.ranks)


LEAVE = """
import atexit
class Model:
    def __del__(self):
        print("model freed: group", dist.is_initialized(), flush=True)
def main():
    model, stop = Model(), StopSignal()
    os.kill(os.getpid(), signal.SIGTERM)
    if stop.requested(1):
        stop.leave()
atexit.register(lambda: print("end: group", dist.is_initialized(), flush=True))
main()
"""


def test_leave_frees_the_model_before_the_process_group(program, tmp_path):
    """A model in DistributedDataParallel must not be the last to hold the group: freeing both at once can hang."""
    result = simulate.run([*program(framework("torch") + LEAVE), str(tmp_path)], ntasks_per_node="2")

    assert result.returncode == EXIT_STOPPED, result.output
    assert [rank.output.splitlines() for rank in result.ranks] == [["model freed: group True", "end: group False"]] * 2


@pytest.fixture(scope="module")
def without_agreement(tmp_path_factory):
    """Start a run that hangs, and let it wait while other tests run; yield its directory and its future result."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("alone")
    source = framework("torch") + WATCH + "expect_hang()\n" + LOOP.replace("stop.requested(step)", "stop._noted")
    (folder / "program.py").write_text(source)
    command = [sys.executable, str(folder / "program.py"), str(folder / "saved"), "1", "SIGTERM"]
    with ThreadPoolExecutor(1) as pool:
        yield folder / "saved", pool.submit(simulate.run, command, nodes=2)


@pytest.fixture(scope="module", autouse=True)
def _waiting(request):
    """Begin the wait with the first test of this file, if the test that needs it will run."""
    if any(item.path == request.path and item.name == "test_without_agreement" for item in request.session.items):
        request.getfixturevalue("without_agreement")


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

    result = simulate.run(command, nodes=2)

    assert result.output.count("make StopSignal after jax.distributed.initialize()") == 2


def test_jax_without_its_own_notifier(program, tmp_path):
    """With JAX's own watch for SIGTERM switched off, ranks still agree."""
    command = [*program(framework("jax") + LOOP), str(tmp_path / "saved"), "1", "SIGTERM"]

    result = simulate.run(command, nodes=2, env={"JAX_ENABLE_PREEMPTION_SERVICE": "false"})

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


@pytest.mark.parametrize(
    ("name", "saved_by", "restored_by"),
    [
        ("jax", 2, (1,)),
        pytest.param("jax", 1, (1, 2, 4), marks=full),
        pytest.param("jax", 2, (1, 2, 4), marks=full),
        pytest.param("jax", 4, (1, 2, 4), marks=full),
        pytest.param("torch", 4, (1, 2, 4), marks=full),
    ],
)
def test_sharded_on_other_numbers(program, tmp_path, name, saved_by, restored_by):
    """A state sharded over some processes is restored on other numbers of them, equal on each rank."""
    start = framework(name) + f"ROWS = {ROWS}\n" + SAVE[name]
    # gloo may abort a process that ends by itself.
    leave = "\nif count > 1: barrier()\nos._exit(0)\n" if name == "torch" else ""
    save = program(f"{start}checkpoints.save(3, tensors, background=True)\ncheckpoints.wait(){leave}\n", "save.py")
    restore = program(start + RESTORE[name] + leave, "restore.py")
    directory = str(tmp_path / "saved")

    result = simulate.run([*save, directory], ntasks_per_node=saved_by)
    assert result.returncode == 0, result.failure
    for count in restored_by:
        result = simulate.run([*restore, directory], ntasks_per_node=count)

        assert result.returncode == 0, result.failure
        assert [rank.stdout.splitlines()[-1] for rank in result.ranks] == ["right True True"] * count
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


@pytest.mark.parametrize(
    ("victim", "kill_at"), [(0, 9), *(pytest.param(*case, marks=full) for case in ((1, 1), (1, 5), (0, 2)))]
)
def test_a_rank_is_killed_within_a_save(program, tmp_path, victim, kill_at):
    """When a rank is killed while all save, the other ends with an error, and the checkpoint before is whole."""
    command = [*program(framework("torch") + KILL), str(tmp_path / "saved"), str(kill_at), str(victim)]

    result = simulate.run(command, nodes=2)

    assert result.ranks[victim].signal == signal.SIGKILL
    assert "saved" not in result.output
    assert Checkpoints(tmp_path / "saved").restore().step == 1
    assert np.array_equal(Checkpoints(tmp_path / "saved").restore().tensors["rows"], [4, 4])


def test_without_agreement(without_agreement):
    """Without the agreement, only the rank that got the signal stops, and it waits for the others in vain."""
    directory, running = without_agreement
    result = running.result()

    assert HUNG in result.output
    assert "stopped at" not in result.output
    assert Checkpoints(directory).steps() == []
