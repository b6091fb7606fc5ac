"""The first programs of the Lightning guide: the losses of one device on any number of processes, and requeue.

`pytest tests/simulation/test_lightning_ladder.py --record` renews the recordings.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.accidents import flip_a_bit, kill_in_save, signal_at_import
from support.programs import edited, losses, stand_ins

from srunbook import simulate
from srunbook.ranklog import RankEnd, RankStart, parse_rank_lines

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "lightning"

EXACT = 1e-5
"""Largest relative difference of a loss in float32: the same numbers, added in another order."""

MIXED = 0.05
"""The same in 16 bits."""

pytestmark = pytest.mark.usefixtures("quick_start")


@dataclass(frozen=True)
class Training:
    """What came of a program.

    Args:
        status: Its exit status.
        text: What it printed.
        failure: What the simulation says where it failed.
        folder: Where it ran.
    """

    status: int
    text: str
    failure: str
    folder: Path

    @property
    def losses(self) -> list[float]:
        """Losses that it printed, in their order."""
        return losses(self.text)


Run = Callable[..., Training]


@pytest.fixture(scope="module")
def run(quick_start: None, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run a program in a folder of its own, unless one is given, with some of its text replaced."""

    def start(
        name: str,
        processes: int = 1,
        *,
        nodes: int = 1,
        folder: Path | None = None,
        edits: Sequence[tuple[str, str]] = (),
        **environ: str,
    ) -> Training:
        folder = folder or tmp_path_factory.mktemp("run")
        edited(EXAMPLES / name, folder, edits)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            env = {"OMP_NUM_THREADS": "1", **environ}
            command = [sys.executable, name]
            ended = simulate.run(command, nodes=nodes, ntasks_per_node=processes // nodes, env=env)
        return Training(ended.returncode, ended.output, ended.failure or "", folder)

    return start


ORDER = (
    "DataLoader(dataset, BATCH_SIZE, shuffle=True,",
    "DataLoader(dataset, BATCH_SIZE, sampler=torch.utils.data.DistributedSampler(dataset, 1, 0),",
)
"""One device in the order in which Lightning shuffles for several processes."""


@pytest.fixture(scope="module")
def one(run: Run) -> Training:
    """Train on one device, in Lightning's order."""
    return run("one_gpu.py", edits=[ORDER])


# The same losses on any number of processes ---------------------------------------------------------------------------


def test_losses_are_those_of_one_device(one: Training, run: Run, tmp_path: Path) -> None:
    """Four processes print the losses of the program for one device, and a line of each at its start and its end.

    They load nothing that Lightning has saved for another job of the same folder.
    """
    (tmp_path / "hpc_ckpt_1.ckpt").write_bytes(b"of another job")
    training = run("ddp.py", 4, nodes=2, folder=tmp_path)
    lines = parse_rank_lines(training.text.splitlines())

    assert training.status == 0, training.failure
    assert len(one.losses) == 5
    assert training.losses == pytest.approx(one.losses, rel=EXACT)
    for kind in (RankStart, RankEnd):
        told = [(line.rank, line.world_size) for line in lines if isinstance(line, kind)]
        assert sorted(told) == [(rank, 4) for rank in range(4)]
    assert len(list(training.folder.rglob("lightning-*/checkpoints/epoch=4-step=160.ckpt"))) == 1


def test_comparison_sees_processes_with_the_same_share(one: Training, run: Run) -> None:
    """Where both processes train on the samples of the first, the losses are others."""
    edit = ('strategy="ddp",', 'strategy="ddp", use_distributed_sampler=False,')
    wrong = run("ddp.py", 2, edits=[edit])

    assert len(wrong.losses) == 5
    assert wrong.losses != pytest.approx(one.losses, rel=0.01)


def test_batch_that_does_not_divide(one: Training, run: Run) -> None:
    """Three processes take the largest equal share of 64, say so, as they say that torch sees no GPUs."""
    training = run("ddp.py", 3, SLURM_GPUS_ON_NODE="3")

    assert training.status == 0, training.failure
    assert training.text.count("warning: Slurm gave this job GPUs and PyTorch sees none") == 1
    assert training.text.index("warning: ") < training.text.index("loss ")
    assert training.text.count(" batch=21\n") == 3
    assert training.losses == pytest.approx(one.losses, rel=0.1)


# Resume and requeue ---------------------------------------------------------------------------------------------------

STEP = "        return loss\n"


def test_resume_after_a_crash(one: Training, run: Run) -> None:
    """A training killed in its third save of last.ckpt resumes from the second, with the losses of one run.

    It loads no other checkpoint, and none in which a bit has flipped.
    """
    died = run("requeue.py", 2, edits=[("import os\n", f"{kill_in_save(6)}import os\n")])  # two files each epoch
    (died.folder / "hpc_ckpt_1.ckpt").write_bytes(b"of another job")
    (died.folder / "checkpoints" / "requeue-simulation" / "last-good.ckpt").write_bytes(b"a copy")
    resumed = run("requeue.py", 2, folder=died.folder)
    flip_a_bit(died.folder / "checkpoints" / "requeue-simulation" / "last.ckpt")
    refused = run("requeue.py", 2, folder=died.folder)

    assert died.status != 0
    assert resumed.status == 0, resumed.failure
    assert resumed.text.count("resumed before epoch 2\n") == 1
    assert resumed.losses == pytest.approx(one.losses[2:], rel=EXACT)
    assert refused.status == 1
    assert "last.ckpt is damaged; delete it to start over" in refused.text
    assert refused.losses == []
    assert "Traceback" not in refused.text


SIGNAL = """\
        if (self.current_epoch, _, self.global_rank) == (1, 7, 1):
            os.kill(os.getpid(), signal.SIGUSR1)
"""
"""Rank 1 alone gets the signal, within an epoch."""


def test_requeue(one: Training, run: Run, tmp_path: Path) -> None:
    """A signal to one process lets all end the epoch and stop; one requeue, and the losses of one without a break.

    More signals reach `scontrol`, and do not end it.
    """
    commands = stand_ins(tmp_path, scontrol='kill -USR1 $$; kill -TERM $$; echo "$@" >> requeued')
    environ = {"PATH": f"{commands}:{os.environ['PATH']}"}
    stopped = run("requeue.py", 2, edits=[(STEP, SIGNAL + STEP)], **environ)
    asked = stopped.folder / "requeued"
    resumed = run("requeue.py", 2, folder=stopped.folder, **environ)

    assert (stopped.status, resumed.status) == (0, 0), stopped.failure + resumed.failure
    assert stopped.losses + resumed.losses == pytest.approx(one.losses, rel=EXACT)
    assert stopped.text.count("stopped before epoch 2\n") == 1
    assert resumed.text.count("resumed before epoch 2\n") == 1
    assert re.fullmatch(r"requeue \d+\n", asked.read_text(encoding="utf-8"))
    assert " end " not in stopped.text
    assert resumed.text.count(" end steps=160") == 2
    assert not list(stopped.folder.rglob("hpc_ckpt*"))


def test_sigterm_alone_saves_and_ends(run: Run, tmp_path: Path) -> None:
    """It may come from `scancel`: all end the epoch, the checkpoint is there, and nobody requeues the job."""
    commands = stand_ins(tmp_path, scontrol='echo "$@" >> requeued')
    edit = SIGNAL.replace("(1, 7, 1)", "(0, 7, 1)").replace("SIGUSR1", "SIGTERM")
    ended = run("requeue.py", 2, edits=[(STEP, edit + STEP)], PATH=f"{commands}:{os.environ['PATH']}")

    assert ended.status == 0, ended.failure
    assert ended.text.count("stopped before epoch 1\n") == 1
    assert [*ended.folder.rglob("last.ckpt")]
    assert not (ended.folder / "requeued").exists()


def test_signal_leaves_no_model_for_other_jobs(run: Run) -> None:
    """A program that does not requeue itself ends at the signal, and saves nothing that another job would load."""
    edit = SIGNAL.replace("(1, 7, 1)", "(1, 7, 0)").replace("os.kill", "import signal; os.kill")
    ended = run("ddp.py", 1, edits=[(STEP, edit + STEP)])

    assert ended.status != 0
    assert [path.name for path in ended.folder.rglob("*.ckpt")] == ["epoch=0-step=32.ckpt"]


def test_requeue_without_scontrol(run: Run) -> None:
    """In a container without Slurm's commands, a training told during its imports saves and says what to do."""
    edit = ("import os\n", f"{signal_at_import('lightning')}import os\n")
    stopped = run("requeue.py", 2, edits=[edit], PATH="/nowhere")

    assert stopped.status == 0, stopped.failure
    assert stopped.text.count("saved; to continue, submit the job again\n") == 1


def test_jobs_of_other_names_keep_apart(one: Training, run: Run) -> None:
    """In one folder, a job with another name, or another member of an array, begins its own training.

    Here the first one has met a full disk, and says so in one line.
    """
    first = run("requeue.py", 2, edits=[('Path(f"{path}.tmp").open', 'Path("/dev/full").open')])
    other = run("requeue.py", 2, folder=first.folder, SLURM_JOB_NAME="exp/1", SLURM_ARRAY_TASK_ID="3")

    assert first.status == 1
    assert re.search(r"error: cannot save .*epoch=0-step=32\.ckpt: (OS|Runtime)Error\(.*make room there", first.failure)
    assert "resumed" not in other.text
    assert other.losses == pytest.approx(one.losses, rel=EXACT)
    assert {path.name for path in (first.folder / "checkpoints").iterdir()} == {"requeue-simulation", "requeue-exp-1-3"}


# Less memory ----------------------------------------------------------------------------------------------------------

SHORT = ("max_epochs=5", "max_epochs=2")


@pytest.mark.parametrize(("precision", "tolerance"), [("32-true", EXACT), ("bf16-mixed", MIXED)])
def test_less_memory_learns_the_same(precision: str, tolerance: float, one: Training, run: Run) -> None:
    """Pieces and recomputing leave the losses as they are in float32, and 16 bits change them little."""
    edit = ('PRECISION = "bf16-mixed"', f'PRECISION = "{precision}"')
    training = run("less_memory.py", 2, edits=[SHORT, edit])

    assert training.status == 0, training.failure
    assert training.losses == pytest.approx(one.losses[:2], rel=tolerance)
