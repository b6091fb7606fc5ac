"""The first programs of the torchrun guide: the losses of one device on any number of processes, resume, requeue.

`pytest tests/simulation/test_torchrun_ladder.py --record` writes the recordings anew.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support import forked
from support.accidents import disk_full, flip_a_bit, signal_at_import
from support.programs import stand_ins

from recordings.comparing import ROUNDING
from srunbook.ranklog import RankStart, parse_rank_lines

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "torchrun"

EXACT = 1e-5
"""Largest relative difference of a loss in float32: the same numbers, added in another order."""

MIXED = 0.05
"""The same in 16 bits."""

pytestmark = pytest.mark.usefixtures("quick_start")


Training = forked.Outcome
Run = forked.Run


@pytest.fixture(scope="module")
def run(quick_start: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Run a program in a folder of its own, unless one is given, with some of its text replaced."""
    with forked.running(EXAMPLES, tmp_path_factory) as start:
        yield start


@pytest.fixture(scope="module")
def one(run: Run) -> Training:
    """Train on one device without any process group."""
    return run("one_gpu.py", 1)


# The same losses on any number of processes ---------------------------------------------------------------------------


def test_losses_are_those_of_one_device(one: Training, run: Run) -> None:
    """Four processes print the losses of the program for one device, and start with the lines of their ranks."""
    training = run("ddp.py", 4)
    starts = [line for line in parse_rank_lines(training.text.splitlines()) if isinstance(line, RankStart)]

    assert training.statuses == [0] * 4, training.text
    assert len(one.losses) == 5
    assert training.losses == pytest.approx(one.losses, rel=EXACT)
    assert sorted(start.rank for start in starts) == [*range(4)]
    assert (training.folder / "model.pt").is_file()


def test_comparison_sees_processes_that_share_no_gradients(one: Training, run: Run) -> None:
    """Without DDP around the model the losses of two processes are others."""
    wrong = run("ddp.py", 2, edit=("    model = DistributedDataParallel(model)\n", ""))

    assert len(wrong.losses) == 5
    assert wrong.losses != pytest.approx(one.losses, rel=100 * EXACT)


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", EXACT), ("bfloat16", MIXED)])
def test_mixed_precision(precision: str, tolerance: float, one: Training, run: Run) -> None:
    """Pieces and recomputing leave the losses as they are in float32, and 16 bits change them little."""
    edit = ("EPOCHS = 5\n", f"EPOCHS = 2\nimport torch as t; t.bfloat16 = t.{precision}\n")
    training = run("mixed_precision.py", 2, edit=edit)

    assert training.losses == pytest.approx(one.losses[:2], rel=tolerance)
    assert (training.losses == pytest.approx(one.losses[:2], rel=EXACT)) is (precision == "float32")


def test_program_with_validation(run: Run) -> None:
    """Batch norm, warm-up, validation and early stopping give the losses of one device, even for an odd share."""
    steps = ("STEPS = 400", "STEPS = 60")
    alone = run("validate_one_gpu.py", 1, edit=steps)
    training = run("validate_ddp.py", 3, edit=steps)
    models = [torch.load(each.folder / "best.pt", weights_only=True) for each in (alone, training)]

    assert len(alone.losses) == 3
    assert training.losses == pytest.approx(alone.losses, rel=EXACT)
    assert models[0].keys() == models[1].keys()
    for name, value in models[0].items():
        torch.testing.assert_close(models[1][name], value, rtol=1e-3, atol=1e-4)


def test_early_stop_is_one_decision(run: Run) -> None:
    """Where no check is good enough, all processes stop once the patience is used up."""
    training = run("validate_ddp.py", 2, edit=("if score < best:", "if score < 0:"))

    assert training.statuses == [0, 0], training.text
    assert len(training.losses) == 2


def test_batch_that_does_not_divide(one: Training, run: Run) -> None:
    """Three processes take an equal share of 64, say so, as they say that torch sees no GPUs, and train as well."""
    training = run("ddp.py", 3, SLURM_GPUS_ON_NODE="3")
    before = training.text.partition("loss ")[0]

    assert training.statuses == [0] * 3, training.text
    for line in (
        "each step: 3 processes x 21 images = 63\n",
        "warning: Slurm gave this job GPUs and PyTorch sees none",
    ):
        assert training.text.count(line) == before.count(line) == 1
    assert training.losses == pytest.approx(one.losses, rel=0.1)


RECURRENT = """
import torch, torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
series = torch.randn(17, 4, 1)  # [time, batch, features]
model = nn.parallel.DistributedDataParallel(nn.RNN(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
state = None
for step in range(4):
    x, y = series[4 * step : 4 * step + 4], series[4 * step + 1 : 4 * step + 5]
    numbers = y.numel()
    x, y = (part[:, rank::world_size] for part in (x, y))
    guess, state = model(x, state)
    state = state.detach()
    loss = ((guess - y) ** 2).sum() / numbers
    optimizer.zero_grad()
    (world_size * loss).backward()
    optimizer.step()
    dist.all_reduce(loss.detach())
    if rank == 0:
        print(f"loss {loss.item():.9f}", flush=True)
del model
dist.destroy_process_group()
"""
"""A recurrent model that carries its state from step to step, with batches divided as the page says."""


@pytest.mark.parametrize(
    ("share", "agree"),
    [
        ("[:, rank::world_size]", [True, True, True, True]),
        ("[rank::world_size]", [False, False, False, False]),
        ("[:, (rank + step) % world_size :: world_size]", [True, False, False, False]),
    ],
    ids=["columns", "rows, which are steps in time", "columns with the state of others"],
)
def test_share_of_a_batch_with_time_first(share: str, agree: list[bool], run: Run, tmp_path: Path) -> None:
    """With [time, batch], two processes compute what one does if each keeps its columns and carries their state."""
    program = tmp_path / "recurrent.py"
    program.write_text(RECURRENT, encoding="utf-8")
    alone = run(str(program), 1)
    training = run(str(program), 2, edit=("[:, rank::world_size]", share))

    assert training.statuses == [0, 0], training.text
    pairs = zip(training.losses, alone.losses, strict=True)
    assert [found == pytest.approx(loss, rel=1e-8) for found, loss in pairs] == agree


# Resume and requeue ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["resume.py", "requeue.py"])
def test_resume_after_a_crash(name: str, one: Training, run: Run) -> None:
    """A training that dies in the third epoch continues before it, and has the losses of one without a break."""
    step = "            optimizer.step()"
    died = run(name, 2, edit=(step, f"            assert epoch < 2\n{step}"))
    (died.folder / f"{Path(name).stem}-run.tmp").write_bytes(b"half a checkpoint")
    resumed = run(name, 2, folder=died.folder)

    assert set(died.statuses) == {1}
    assert resumed.statuses == [0, 0], resumed.text
    assert re.search(r"resumed (before|in) epoch 2", resumed.ranks[0]["stdout"])
    assert died.losses + resumed.losses == pytest.approx(one.losses, rel=EXACT)


SIGNAL = (
    "            optimizer.step()\n",
    "            optimizer.step()\n"
    "            if (epoch, done, rank) == (1, 6, 1):\n"
    "                signal.raise_signal(signal.SIGUSR1)\n"
    "                signal.raise_signal(signal.SIGTERM)\n",  # torchrun makes it of a second SIGUSR1
)


def test_requeue_stops_at_a_signal(one: Training, run: Run, tmp_path: Path) -> None:
    """Two signals stop all ranks after the same batch, once saved; a member of an array requeues itself alone.

    The same two signals to rank 0 and scontrol, while that runs, end neither.
    """
    commands = stand_ins(tmp_path, scontrol='kill -USR1 $$ $PPID; kill -TERM $$ $PPID; echo "$@" >>requeued')
    member = {"SLURM_JOB_ID": "40", "SLURM_ARRAY_JOB_ID": "40", "SLURM_ARRAY_TASK_ID": "3"}
    environ = {**member, "PATH": f"{commands}:/usr/bin:/bin"}
    stopped = run("requeue.py", 2, edit=SIGNAL, **environ)
    resumed = run("requeue.py", 4, folder=stopped.folder, **environ)

    assert stopped.statuses == [0, 0], stopped.text
    assert stopped.text.count("stopped in epoch 1 after batch 7") == 1
    assert (stopped.folder / "requeued").read_text() == "requeue 40_3\n"
    assert "resumed in epoch 1 after batch 7" in resumed.text
    assert sorted(path.name for path in stopped.folder.glob("*-3.*")) == ["model-run-3.pt", "requeue-run-3.checkpoint"]
    assert stopped.losses + resumed.losses == pytest.approx(one.losses, rel=EXACT)


def test_sigterm_alone_saves_and_ends(run: Run, tmp_path: Path) -> None:
    """It may come from `scancel`: all ranks save after the same batch, and nobody requeues the job."""
    commands = stand_ins(tmp_path, scontrol='echo "$@" >>requeued')
    line, signals = SIGNAL
    alone = signals.replace("(1, 6, 1)", "(0, 6, 1)").replace("SIGUSR1", "SIGTERM")
    ended = run("requeue.py", 2, edit=(line, alone), SLURM_JOB_ID="40", PATH=f"{commands}:/usr/bin:/bin")

    assert ended.statuses == [0, 0], ended.text
    assert ended.text.count("stopped in epoch 0 after batch 7") == 1
    assert (ended.folder / "requeue-run.checkpoint").is_file()
    assert not (ended.folder / "requeued").exists()


def test_signal_before_torch_is_there(run: Run) -> None:
    """Two signals during the imports stop all after the first batch; without `scontrol`, one line says what to do."""
    stopped = run("requeue.py", 2, before=signal_at_import("torch", signal.SIGTERM), SLURM_JOB_ID="17", PATH="/nowhere")

    assert stopped.statuses == [0, 0], stopped.text
    assert "stopped in epoch 0 after batch 1\n" in stopped.text
    assert (stopped.folder / "requeue-run.checkpoint").is_file()
    assert stopped.text.count("saved; to continue, submit the job again") == 1


def test_resume_and_requeue_keep_apart(run: Run) -> None:
    """In one folder, the training of resume.py is none that requeue.py continues; a job's name chooses the run."""
    first = run("resume.py", 2)
    second = run("requeue.py", 2, folder=first.folder)
    named = run("requeue.py", 2, folder=first.folder, SLURM_JOB_NAME="other")

    assert len(first.losses) == len(second.losses) == len(named.losses) == 5
    assert {path.name for path in first.folder.glob("*.checkpoint")} == {
        "resume-run.checkpoint",
        "requeue-run.checkpoint",
        "requeue-other.checkpoint",
    }


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("resume.py", flip_a_bit),
        ("requeue.py", flip_a_bit),
        ("resume.py", lambda path: torch.save({"model": {"0.weight": torch.zeros(1)}, "optimizer": {}}, path)),
    ],
    ids=["resume", "requeue", "of another model"],
)
def test_checkpoint_that_cannot_be_used(name: str, damage: Any, run: Run) -> None:
    """A checkpoint that is not as it was written ends all processes, with one line, and stays as it is."""
    path = run(name, 1, edit=("EPOCHS = 5", "EPOCHS = 1")).folder / f"{Path(name).stem}-run.checkpoint"
    damage(path)
    content = path.read_bytes()
    refused = run(name, 2, folder=path.parent)

    assert refused.statuses == [1, 1], refused.text
    assert refused.losses == []
    (line,) = [line for rank in refused.ranks for line in rank["stderr"].splitlines()]
    assert line.startswith(f"error: cannot continue from {path.name}; delete it to start over: ")
    assert path.read_bytes() == content


@pytest.mark.parametrize(("name", "save"), [("resume.py", 2), ("requeue.py", 2), ("requeue.py", 3)])
def test_file_that_cannot_be_written(name: str, save: int, run: Run) -> None:
    """A checkpoint or model for which the disk has no room ends all ranks with one line; the next start goes on."""
    edit = ("EPOCHS = 5", "EPOCHS = 2")
    full = run(name, 2, edit=edit, before=disk_full(save), SLURM_JOB_NAME="a/b c")
    named = [*full.folder.glob("model*.pt")]
    resumed = run(name, 2, edit=edit, folder=full.folder, SLURM_JOB_NAME="a/b c")
    stem = Path(name).stem

    assert full.statuses == [1, 1], full.text
    (line,) = [line for rank in full.ranks for line in rank["stderr"].splitlines()]
    assert line.startswith(f"error: cannot save in {full.folder}: [Errno 28] No space left on device; make room")
    assert named == []
    assert re.search(rf"resumed (before|in) epoch {save - 1}", resumed.text)
    assert {path.name for path in full.folder.iterdir()} == {name, f"{stem}-a-b c.checkpoint", "model-a-b c.pt"}


# A process that fails -------------------------------------------------------------------------------------------------


def test_error_is_kept_for_torchrun(run: Run, tmp_path: Path) -> None:
    """Each process writes its error into the file that torchrun names; rank 1 has the broken image."""
    name = 'os.environ.get("LOCAL_RANK")'
    ask = f"import os\nos.environ['TORCHELASTIC_ERROR_FILE'] = f'{tmp_path}/{{{name}}}.json'\nimport sys\n"
    failed = run("first_error.py", 2, edit=("import os\nimport sys\n", ask))

    assert set(failed.statuses) == {1}
    assert len(failed.losses) == 2
    assert "ValueError: a broken image" in (tmp_path / "1.json").read_text(encoding="utf-8")
    assert "RuntimeError" in (tmp_path / "0.json").read_text(encoding="utf-8")


@pytest.mark.full
def test_torchrun_names_the_first_error(reader: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first command at the top ends with the rank that failed first, and with its traceback."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("TMPDIR", str(reader.folder))  # where torchrun keeps the errors
    program = EXAMPLES / "first_error.py"
    result = reader.run(program, reader.commands(program)[0])
    cause = result.text.rpartition("Root Cause (first observed failure):")[2]

    assert result.exit_code == 1
    assert re.search(r"rank +: 1 ", cause)
    assert "ValueError: a broken image" in cause
    own = re.compile(r"^(Root Cause|  ValueError|  rank +: 1 )")
    reader.compare(program, result, lambda line: own.match(line) is not None, ROUNDING)
