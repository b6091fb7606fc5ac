"""Stop signals in torch and JAX programs of several processes."""

from __future__ import annotations

import re
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from srunbook import simulate
from srunbook.signals import EXIT_STOPPED

WATCH = """
def expect_hang():
    # The time runs from when all ranks are here: on a busy machine one may start much later than another.
    import faulthandler, os, time
    rank, count = (int(os.environ[name]) for name in ("SLURM_PROCID", "SLURM_NTASKS"))
    here = f"{os.path.abspath(__file__)}.{os.environ['SLURM_JOB_ID']}."
    open(f"{here}{rank}", "w").close()
    while not all(os.path.exists(f"{here}{other}") for other in range(count)):
        time.sleep(0.02)
    faulthandler.dump_traceback_later(5, exit=True)
"""

HUNG = "Timeout (0:00:05)!"
"""The first line of what a rank prints that has hung."""


TORCH = """
import os, signal, sys, time
import torch, torch.distributed as dist
from srunbook.signals import StopSignal
from srunbook.slurm import StepEnvironment
place = StepEnvironment.from_environ()
os.environ["MASTER_ADDR"] = place.coordinator
os.environ["MASTER_PORT"] = str(15000 + place.job_id % 10000)
dist.init_process_group("gloo", rank=place.rank, world_size=place.world_size)
rank = place.rank
"""

JAX = """
import os, signal, sys, time
import jax
from srunbook.signals import StopSignal
jax.distributed.initialize()
rank = jax.process_index()
"""

LOOP = """
stop = StopSignal()
numbers = [getattr(signal, name) for name in sys.argv[1:]]
step = 0
while True:
    step += 1
    if step == 5 and rank == 1:
        for number in numbers:
            os.kill(os.getpid(), number)
    if stop.requested():
        print(f"stopped at {step} for {stop.signal.name}", flush=True)
        os.kill(os.getpid(), numbers[0])
        stop.leave()
"""


def framework(name):
    """Return the first lines of a program."""
    pytest.importorskip(name)
    return {"torch": TORCH, "jax": JAX}[name]


@pytest.fixture(scope="module", autouse=True)
def without_agreement(request, tmp_path_factory):
    """Start a run that hangs, and let it wait while other tests run; yield its future result."""
    source = framework("torch") + WATCH + "expect_hang()\n" + LOOP.replace("stop.requested()", "stop._noted")
    source = source.replace("stop.signal.name", "0")
    path = tmp_path_factory.mktemp("alone") / "program.py"
    path.write_text(source)
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(simulate.run, [sys.executable, str(path), "SIGTERM"], nodes=2)


@pytest.mark.parametrize(("name", "numbers"), [("torch", ["SIGUSR2", "SIGTERM"]), ("jax", ["SIGTERM", "SIGTERM"])])
def test_signal_to_one_rank(program, name, numbers):
    """A signal to one rank, also when another follows, stops all ranks at the same step."""
    result = simulate.run([*program(framework(name) + LOOP), *numbers], nodes=2)

    assert not result.timed_out
    assert result.returncode == EXIT_STOPPED, result.failure
    assert re.findall(r"stopped at .*", result.output) == [f"stopped at 5 for {numbers[0]}"] * 2


LEAVE = """
import atexit
class Model:
    def __del__(self):
        print("model freed: group", dist.is_initialized(), flush=True)
def main():
    model, stop = Model(), StopSignal()
    os.kill(os.getpid(), signal.SIGTERM)
    if stop.requested():
        stop.leave()
atexit.register(lambda: print("end: group", dist.is_initialized(), flush=True))
main()
"""


def test_leave_frees_the_model_before_the_process_group(program):
    """A model in DistributedDataParallel must not be the last to hold the group: freeing both at once can hang."""
    result = simulate.run(program(framework("torch") + LEAVE), ntasks_per_node="2")

    assert result.returncode == EXIT_STOPPED, result.output
    assert [rank.output.splitlines() for rank in result.ranks] == [["model freed: group True", "end: group False"]] * 2


def test_without_agreement(without_agreement):
    """Without the agreement, only the rank that got the signal stops, and it waits for the others in vain."""
    result = without_agreement.result()

    assert HUNG in result.output
    assert result.output.count("stopped at") <= 1
