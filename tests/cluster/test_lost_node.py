"""A node dies under a job that keeps the others, on a real Slurm.

`pytest tests/cluster/test_lost_node.py --record` writes what the job printed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.proof import job_run
from support.published import stage

from recordings.comparing import Mask
from srunbook import cluster
from srunbook.cluster import FinishedJob, State, faults

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "slurm" / "runs_that_last" / "elastic.sbatch"
ONE_GPU = "--gpus-per-node=1"
SOON = "--export=ALL,PET_RDZV_CONF=last_call_timeout=1"
"""torchrun waits a second for further nodes, not half a minute."""

MOMENT = Mask(r"resumed in epoch \d+", "resumed in epoch <n>", "the node dies in another epoch")


@dataclass
class Trial:
    """A job, and the folder in which it runs.

    Args:
        state: The cluster.
        number: The job's number.
        folder: Where it was submitted.
    """

    state: State
    number: str
    folder: Path

    def log(self) -> str:
        """Return what it has printed so far."""
        path = self.folder / f"my-elastic-{self.number}.out"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def kill(self, place: int, as_user: Callable[..., str]) -> None:
        """Let one of its nodes die, and let Slurm know at once; by itself it notices after a minute."""
        named = as_user("squeue", "--noheader", "--format=%N", f"--jobs={self.number}").strip()
        node = as_user("scontrol", "show", "hostnames", named).split()[place]
        faults.kill_node(self.state, node)
        down = ["scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=dead"]
        assert cluster.capture(self.state, down, user=None).returncode == 0


@pytest.fixture
def trial(healed: State, as_user: Callable[..., str], until: Callable[[Callable[[], object]], object]) -> Trial:
    """Start a training whose ranks wait five seconds for each other, and let it finish an epoch."""
    inside = stage(healed, SCRIPT)
    program = healed.folder / inside.removeprefix("/") / "elastic.py"
    text = program.read_text(encoding="utf-8")
    for published, short in (("EPOCHS = 5\n", "EPOCHS = 20\n"), ("TIMEOUT = 60 ", "TIMEOUT = 5 ")):
        assert text.count(published) == 1
        text = text.replace(published, short)
    program.write_text(text, encoding="utf-8")
    submit = f"cd {inside} && sbatch --parsable {SOON} {ONE_GPU} {SCRIPT.name}"
    started = Trial(healed, as_user("bash", "-c", submit).strip(), program.parent)
    until(lambda: "epoch 0: loss" in started.log())
    return started


def check_training(job: FinishedJob) -> None:
    """Check that the job has completed, continued after the last epoch that was saved, and trained each epoch well."""
    assert job.state == "COMPLETED", job.output
    losses = {int(epoch): float(loss) for epoch, loss in re.findall(r"epoch (\d+): loss (\S+)", job.output)}
    assert sorted(losses) == [*range(20)], job.output
    assert losses[19] < 0.01
    (resumed,) = map(int, re.findall(r"resumed in epoch (\d+) after batch 0", job.output))
    printed = re.findall(r"epoch (\d+): loss|resumed", job.output)
    before = int(printed[printed.index("") - 1])
    assert resumed in (before, before + 1)  # it may have died between the line and the save


def test_training_continues_on_the_nodes_that_are_left(
    trial: Trial, as_user: Callable[..., str], recorded: Callable[..., None]
) -> None:
    """When a node dies, the same start of the job continues from the checkpoint with a node less, and completes."""
    trial.kill(1, as_user)
    job = cluster.await_job(trial.state, trial.number)

    check_training(job)
    assert "Restarts=0" in as_user("scontrol", "show", "job", trial.number)
    assert set(re.findall(r"rank \d/(\d) end", job.output)) == {"3"}
    assert "connectFullMesh failed" not in job.output  # the ranks met at the first restart
    recorded(
        SCRIPT,
        job_run(trial.state, SCRIPT, job, command=f"sbatch {ONE_GPU} {SCRIPT.name}"),
        re.compile(r"rank \d+/|resumed|each step|Node failure").search,
        [MOMENT],
        name="died",
    )


@pytest.mark.full
def test_job_starts_again_without_its_first_node(
    trial: Trial, as_user: Callable[..., str], until: Callable[[Callable[[], object]], object]
) -> None:
    """When the first node dies, the job returns to the queue, continues from the checkpoint, and completes."""
    trial.kill(0, as_user)
    until(lambda: as_user("squeue", "--noheader", "--format=%T", f"--jobs={trial.number}").strip() == "PENDING")
    faults.heal(trial.state)
    job = cluster.await_job(trial.state, trial.number)

    check_training(job)
    assert "Restarts=1" in as_user("scontrol", "show", "job", trial.number)
    assert set(re.findall(r"rank \d/(\d) end", job.output)) == {"4"}
