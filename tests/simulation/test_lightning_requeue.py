"""A Lightning training that a signal stops continues with the next batch, and ends with the same model."""

from __future__ import annotations

import os
import random
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.accidents import kill_in_save, signal_at_import
from support.ports import hold
from support.programs import stand_ins

from srunbook import simulate
from srunbook.ranklog import RankEnd, parse_rank_lines

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "examples" / "lightning" / "full" / "train_requeue.py"

SIGNALLED = f"""
import os, signal, sys
sys.path.insert(0, {str(PROGRAM.parent)!r})
import train_requeue

class Signalled(train_requeue.Requeue):
    def on_train_batch_start(self, trainer, *_):
        if trainer.global_rank == trainer.world_size - 1 and trainer.global_step == int(os.environ["TEST_STEP"]):
            os.kill(os.getpid(), getattr(signal, os.environ["TEST_SIGNAL"]))

train_requeue.Requeue = Signalled
if os.environ["TEST_LOADER"] == "stock":
    train_requeue.ResumableData = train_requeue.CloudData
train_requeue.main()
"""
"""The program, in which the last rank alone gets a signal within a step."""

ITERATIONS = 28
"""In an epoch: 7,000 samples, two ranks, 128 in a batch of each."""


@dataclass(frozen=True)
class Outcome:
    """What came of a start.

    Args:
        status: Exit status.
        text: What it printed.
        requeues: What `scontrol` was asked for since the test began.
    """

    status: int
    text: str
    requeues: list[str]

    @property
    def stopped_after(self) -> int:
        """The iteration after which it says that it stops."""
        (found,) = set(re.findall(r"Stopping after iteration (\d+): ", self.text))
        return int(found)

    @property
    def fingerprint(self) -> str:
        """The one fingerprint that both ranks print at the end, after all iterations."""
        assert self.status == 0, self.text
        ends = [line for line in parse_rank_lines(self.text.splitlines()) if isinstance(line, RankEnd)]
        ((steps, fingerprint),) = {(end.steps, end.params) for end in ends}
        assert (len(ends), steps) == (2, 2 * ITERATIONS)
        assert fingerprint
        return fingerprint


Start = Callable[..., Outcome]

pytestmark = pytest.mark.usefixtures("quick_start")


def free_job() -> str:
    """Find a job id from whose last digits Lightning makes a port that nobody listens at."""
    while not hold(15_000 + (job := random.randint(10_000, 99_999)) % 10_000):
        pass
    return str(job)


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Give a way to start the tasks of one job, two by default, again and again, with a stand-in for scontrol.

    The stand-in is signalled as it starts.
    """
    job = free_job()
    asked = tmp_path / "asked"
    asked.touch()
    commands = stand_ins(tmp_path, scontrol=f'kill -USR1 $$; kill -TERM $$; echo "$*" >> {asked}')

    def run(
        *options: str,
        step: int = -1,
        signal: str = "SIGUSR1",
        loader: str = "resumable",
        folder: str = "outputs",
        restarts: int = 0,
        tasks: int = 2,
        accident: str = "",
        path: str = f"{commands}:{os.environ['PATH']}",
    ) -> Outcome:
        argv = [sys.executable, "-c", accident + SIGNALLED, "--epochs=2", "--batch_size=128", *options]
        environ = {"OMP_NUM_THREADS": "1", "SLURM_JOB_ID": job, "PATH": path}
        environ |= {"TEST_STEP": str(step), "TEST_SIGNAL": signal, "TEST_LOADER": loader}
        environ |= {"SLURM_RESTART_COUNT": str(restarts)} if restarts else {}
        argv = [*argv, f"--output_dir={tmp_path / folder}"]
        result = simulate.run(argv, ntasks_per_node=tasks, env=environ)
        text = result.output + "".join(rank.output for rank in result.ranks if rank.returncode not in (0, 75))
        return Outcome(result.returncode, text, asked.read_text(encoding="utf-8").replace(job, "JOB").splitlines())

    return run


@pytest.fixture(scope="module")
def undisturbed(quick_start: None, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Train without a stop; return the fingerprint."""
    folder = tmp_path_factory.mktemp("undisturbed")
    argv = [sys.executable, str(PROGRAM), "--epochs=2", "--batch_size=128", f"--output_dir={folder / 'outputs'}"]
    result = simulate.run(argv, ntasks_per_node=2, env={"OMP_NUM_THREADS": "1"})
    return Outcome(result.returncode, result.output, []).fingerprint


def test_nothing_is_lost_within_an_epoch(start: Start, undisturbed: str) -> None:
    """A signal to one rank stops both after the same iteration; one requeue, and the same bits in the end."""
    first = start(step=ITERATIONS + 9)
    assert first.status == 75, first.text
    again = start(restarts=1)

    assert first.stopped_after == ITERATIONS + 10
    assert first.requeues == again.requeues == ["requeue JOB"]
    assert "Epoch 1/2" not in again.text
    assert again.fingerprint == undisturbed


def test_preemption_does_not_requeue(start: Start) -> None:
    """At SIGTERM a job saves and ends, also one of a single task; whoever preempts it puts it back into the queue."""
    outcome = start(step=3, signal="SIGTERM", tasks=1)

    assert outcome.status == 75, outcome.text
    assert "Stopping after iteration 4: SIGTERM" in outcome.text
    assert outcome.requeues == []


def test_stop_without_scontrol(start: Start) -> None:
    """Told during its imports, in a container without Slurm's commands, it saves and says what to type elsewhere."""
    outcome = start(accident=signal_at_import("lightning"), path="/nowhere")

    assert outcome.status == 75, outcome.text
    assert "saved; to continue, type on a login node: scontrol requeue" in outcome.text
    assert outcome.requeues == []


def test_a_death_costs_the_epoch(start: Start, undisturbed: str) -> None:
    """A job killed in its save within an epoch continues after the last whole epoch, with the same bits."""
    first = start(step=ITERATIONS + 9, accident=kill_in_save(2))
    assert first.status not in (0, 75), first.text
    again = start(restarts=1)

    assert "Epoch 1/2" not in again.text
    assert again.fingerprint == undisturbed


def test_stock_loader_replays(start: Start, undisturbed: str) -> None:
    """With Lightning's own way to load, the first batches of the epoch come again, and other parameters come out."""
    whole = start(loader="stock", folder="whole")
    first = start(step=9, loader="stock")
    assert first.status == 75, first.text
    again = start(loader="stock", restarts=1)

    assert whole.fingerprint == undisturbed
    assert "your dataloader is not resumable" in again.text
    assert again.fingerprint != undisturbed
