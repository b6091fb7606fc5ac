"""The first programs of the gloo guide: the losses of one process on any number of them, resume, the time of a step.

`pytest tests/simulation/test_gloo_ddp_ladder.py --record` writes the recordings anew.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import forked
from support.accidents import disk_full, flip_a_bit
from support.programs import stand_ins

from srunbook.ranklog import RankStart, parse_rank_lines

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "gloo_ddp"
SCRIPT = ROOT / "slurm" / "gloo_ddp" / "ddp_cpu.sbatch"

EXACT = 1e-5
"""Largest relative difference of a loss in float32: the same numbers, added in another order."""

pytestmark = pytest.mark.usefixtures("quick_start")


Training = forked.Outcome
Run = forked.Run


@pytest.fixture(scope="module")
def run(quick_start: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Run a program as tasks of srun in a folder of its own, with some of its text replaced."""
    with forked.running(EXAMPLES, tmp_path_factory) as start:
        yield lambda name, nodes, before="", **options: start(
            name, 1, nodes=nodes, before=forked.AS_TASK + before, **options
        )


@pytest.fixture(scope="module")
def one(run: Run) -> Training:
    """Train in one process without any process group."""
    return run("one_process.py", 1)


# The same losses on any number of processes ---------------------------------------------------------------------------


def test_losses_are_those_of_one_process(one: Training, run: Run) -> None:
    """Four processes print the losses of the program for one process, and start with the lines of their ranks."""
    training = run("ddp_cpu.py", 4)
    starts = [line for line in parse_rank_lines(training.text.splitlines()) if isinstance(line, RankStart)]

    assert training.statuses == [0] * 4, training.text
    assert len(one.losses) == 5
    assert one.losses[-1] < one.losses[0] / 2
    assert training.losses == pytest.approx(one.losses, rel=EXACT)
    assert [(start.rank, start.host, start.device) for start in starts] == [
        (rank, f"node{rank}", "cpu") for rank in range(4)
    ]
    assert (training.folder / "model.pt").is_file()


def test_comparison_sees_processes_that_share_no_gradients(one: Training, run: Run) -> None:
    """Without the average of the gradients the losses of two processes are others."""
    wrong = run("ddp_cpu.py", 2, edit=("    model = DistributedDataParallel(model)\n", ""))

    assert len(wrong.losses) == 5
    assert wrong.losses != pytest.approx(one.losses, rel=100 * EXACT)


def test_batch_that_does_not_divide(one: Training, run: Run) -> None:
    """Three processes take the largest equal share of 64, say so in one line, and train as well."""
    training = run("ddp_cpu.py", 3)

    assert training.statuses == [0, 0, 0], training.text
    assert training.text.count("each step: 3 processes x 21 windows = 63") == 1
    assert training.losses[-1] == pytest.approx(one.losses[-1], rel=0.1)


# Resume ---------------------------------------------------------------------------------------------------------------


def test_resume_after_a_crash(one: Training, run: Run) -> None:
    """A training that dies in the third epoch continues before it, and has the losses of one without a break."""
    step = "            loss.backward()"
    died = run("resume.py", 2, edit=(step, f"            assert epoch < 2\n{step}"))
    (died.folder / "resume-run.tmp").write_bytes(b"half a checkpoint")
    resumed = run("resume.py", 4, folder=died.folder)

    assert set(died.statuses) == {1}
    assert resumed.statuses == [0] * 4, resumed.text
    assert resumed.text.count("resumed before epoch 2") == 1
    assert died.losses + resumed.losses == pytest.approx(one.losses, rel=EXACT)


def test_damaged_checkpoint_is_left_as_it_is(run: Run) -> None:
    """A checkpoint of which a bit has flipped ends all processes, with one line, and nothing is overwritten."""
    path = run("resume.py", 1, edit=("EPOCHS = 5", "EPOCHS = 1")).folder / "resume-run.checkpoint"
    flip_a_bit(path)
    content = path.read_bytes()
    (path.parent / "model-run.pt").unlink()
    refused = run("resume.py", 2, folder=path.parent)

    assert refused.statuses == [1, 1], refused.text
    assert refused.losses == []
    (line,) = [line for rank in refused.ranks for line in rank["stderr"].splitlines()]
    assert line.startswith(f"error: cannot continue from {path.name}; delete it to start over: ")
    assert path.read_bytes() == content
    assert not [*path.parent.glob("model*.pt")]


@pytest.mark.parametrize("save", [2, 3])
def test_file_that_cannot_be_written(save: int, run: Run) -> None:
    """A checkpoint or model for which the disk has no room ends all ranks with one line; the next start goes on."""
    edit = ("EPOCHS = 5", "EPOCHS = 2")
    full = run("resume.py", 2, edit=edit, before=disk_full(save), SLURM_JOB_NAME="a/b c")
    resumed = run("resume.py", 3, edit=edit, folder=full.folder, SLURM_JOB_NAME="a/b c")

    assert full.statuses == [1, 1], full.text
    (line,) = [line for rank in full.ranks for line in rank["stderr"].splitlines()]
    assert line.startswith(f"error: cannot save in {full.folder}: [Errno 28] No space left on device; make room")
    assert f"resumed before epoch {save - 1}" in resumed.text
    names = {"resume.py", "resume-a-b c.checkpoint", "model-a-b c.pt"}
    assert {path.name for path in full.folder.iterdir()} == names


# The times of a step --------------------------------------------------------------------------------------------------


def test_times_of_a_step(one: Training, run: Run) -> None:
    """The table has a row for each epoch and rank, with the means of what each read from its clock."""
    clock = (  # it counts how often it is read: in milliseconds on rank 0, in twice as many on rank 1
        "from itertools import count\nticks = count()\n"
        "perf_counter = lambda: next(ticks) * (1 + int(os.environ['SLURM_PROCID'])) / 1000\n"
    )
    training = run("timed.py", 2, edit=("from time import perf_counter\n", clock))
    rows = training.table("metrics.csv")

    assert list(rows[0]) == ["epoch", "rank", "loss", "data_ms", "compute_ms", "wait_ms"]
    assert [(row["epoch"], row["rank"]) for row in rows] == [(str(e), str(r)) for e in range(5) for r in range(2)]
    assert [float(rows[2 * epoch]["loss"]) for epoch in range(5)] == training.losses
    assert training.losses == pytest.approx(one.losses, rel=EXACT)
    # Between two steps it is read once; before the gradients are there and after the average twice; in between once.
    assert [[row[part] for part in list(row)[3:]] for row in rows] == [
        ["1.000", "2.000", "1.000"],
        ["2.000", "4.000", "2.000"],
    ] * 5
    assert "rank 1: data 2.000 ms, computing 4.000 ms, waiting 2.000 ms a step" in training.text


def test_table_is_whole_or_as_it_was(run: Run, tmp_path: Path) -> None:
    """Where the table cannot be written to its end, the one of before stays, and the job fails."""
    (tmp_path / "metrics.csv").write_text("of before\n")
    broken = run(
        "timed.py", 1, edit=("writerows(rows)", "writerow(rows[0]); raise OSError('disk full')"), folder=tmp_path
    )

    assert broken.statuses == [1]
    assert "disk full" in broken.text
    assert (tmp_path / "metrics.csv").read_text() == "of before\n"


# Starting ------------------------------------------------------------------------------------------------------------


def test_python_without_srun_is_refused(tmp_path: Path) -> None:
    """In the shell of a job with two tasks, python alone would wait for a rank that nobody starts."""
    environ = {**os.environ, "SLURM_JOB_ID": "17", "SLURM_NTASKS": "2", "SLURM_PROCID": "0"}
    environ.pop("SLURM_STEP_ID", None)
    command = [sys.executable, EXAMPLES / "ddp_cpu.py"]
    result = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)

    assert result.returncode == 1
    assert result.stderr == "error: start this program with srun, which gives each process its rank\n"
    assert not list(tmp_path.iterdir())


def test_job_script_starts_what_it_is_given(tmp_path: Path) -> None:
    """Without arguments it starts ddp_cpu.py, else the named rung; first node, port and threads reach the tasks."""
    home = tmp_path / "home" / "torch-env" / "bin"
    home.mkdir(parents=True)
    say = 'echo "$MASTER_ADDR $MASTER_PORT $OMP_NUM_THREADS" "$@"'
    commands = stand_ins(tmp_path, srun=say, scontrol="printf 'node3\\nnode4\\n'")
    (home / "activate").write_text(f'PATH="{commands}:$PATH"\n')
    environ = {**os.environ, "HOME": str(tmp_path / "home"), "SLURM_JOB_ID": "7018", "SLURM_CPUS_PER_TASK": "8"}
    environ["SLURM_JOB_NODELIST"] = "node[3-4]"
    said = [
        subprocess.run(["bash", SCRIPT, *more], env=environ, capture_output=True, text=True, check=True).stdout
        for more in ((), ("timed.py",))
    ]

    options = "--label --kill-on-bad-exit=1 --wait=0 --cpus-per-task=8"
    assert said == [f"node3 25018 8 {options} python {name}\n" for name in ("ddp_cpu.py", "timed.py")]
