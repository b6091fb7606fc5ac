"""Checkpoints of the guide *When it does not fit*: other numbers of ranks read them, damage, the time limit.

bench/does_not_fit_checkpoints.py has every layout read what each other one has written.
"""

from __future__ import annotations

import fcntl
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from safetensors.torch import load_file
from support import forked
from support.accidents import flip_a_bit
from support.programs import stand_ins

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "does_not_fit"
IMPORTED = ("torch.distributed.checkpoint.state_dict", "torch.distributed.fsdp")
EXACT = 1e-5
"""Largest relative difference of a loss on as many ranks: the same numbers, added in the order of arrival."""

MIXED = 0.02
"""The same on another number of ranks, each of which rounds its sums to 16 bits."""

pytestmark = pytest.mark.usefixtures("quick_start")


@pytest.fixture(scope="module")
def run(quick_start: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[forked.Run]:
    """Run a program of the guide on ranks."""
    with forked.running(EXAMPLES, tmp_path_factory, *IMPORTED) as start:
        yield start


@pytest.fixture(scope="module")
def saved(run: forked.Run) -> forked.Outcome:
    """Train on two ranks without a break; the checkpoints of steps 30 and 40 are left."""
    return run("resume.py", 2)


def checkpoints(folder: Path, name: str = "resume-run") -> Path:
    """Return where a program saves in a folder."""
    return folder / "checkpoints" / name


def names(folder: Path) -> list[str]:
    """Return the names of what a folder shows."""
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def copied(saved: forked.Outcome, tmp_path: Path) -> Path:
    """Copy the checkpoint of step 30 into a folder, as the newest."""
    shutil.copytree(checkpoints(saved.folder), checkpoints(tmp_path))
    shutil.rmtree(checkpoints(tmp_path) / "000040")
    return tmp_path


def test_another_number_of_ranks_continues(saved: forked.Outcome, copied: Path, run: forked.Run) -> None:
    """Three ranks read what two have saved and have the losses of the unbroken training; two checkpoints are kept."""
    found = run("resume.py", 3, folder=copied)

    assert set(found.statuses) == {0}, found.text
    assert found.text.count("resumed after step 30\n") == 1
    assert found.losses == pytest.approx(saved.losses[3:], rel=MIXED)
    assert names(checkpoints(saved.folder)) == ["000030", "000040"]


def test_run_that_dies_while_it_saves(saved: forked.Outcome, run: forked.Run, tmp_path: Path) -> None:
    """Half a checkpoint is not found, nor is a copy: the next run continues after the one before, and saves again."""
    renamed = "        if dist.get_rank() == 0:\n            beside.rename"
    died = run("resume.py", 2, folder=tmp_path, edit=(renamed, f"        step == 20 and os._exit(9)\n{renamed}"))
    folder = checkpoints(tmp_path)
    left = names(folder)
    shutil.copytree(folder / "unfinished", folder / "000011-good")
    (folder / "000012.tar").write_bytes(b"")
    found = run("resume.py", 2, folder=tmp_path)

    assert died.statuses == [9, 9], died.text
    assert left == ["000010", "unfinished"]
    assert found.text.count("resumed after step 10\n") == 1
    assert found.losses == pytest.approx(saved.losses[1:], rel=EXACT)
    assert names(folder) == ["000011-good", "000012.tar", "000030", "000040"]


def test_save_that_fails(run: forked.Run) -> None:
    """An error of one rank while it writes ends all with one line."""
    save = "        dcp.save("
    full = "        if dist.get_rank() == 1:\n            os.fsync = lambda _: Path('/dev/full').write_bytes(b'x')\n"
    found = run("resume.py", 2, edit=(save, full + save))

    assert found.statuses == [1, 1], found.text
    (line,) = found.errors
    assert line.startswith("error: cannot save in checkpoints/resume-run: [Errno 28] No space left"), found.text
    assert "Traceback" not in found.text


def test_second_job_in_a_folder(run: forked.Run, tmp_path: Path) -> None:
    """It ends with one line, and leaves what the other job is writing."""
    folder = checkpoints(tmp_path)
    (folder / "unfinished").mkdir(parents=True)
    with Path(f"{folder}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = run("resume.py", 2, folder=tmp_path)

    assert found.refusal.startswith("error: another job is training in checkpoints/resume-run: ")
    assert names(folder) == ["unfinished"]


def test_requeue_stops_at_a_signal(saved: forked.Outcome, run: forked.Run, tmp_path: Path) -> None:
    """Signals stop all after the same step, saved and requeued once; the next start continues there, in its own run."""
    third = "kill -USR1 $$; kill -TERM $$"  # more of them that reach scontrol as well
    commands = stand_ins(tmp_path, scontrol=f'{third}; echo "$@" >>{tmp_path}/requeued')
    environ = {"SLURM_JOB_ID": "17", "SLURM_JOB_NAME": "exp/1", "PATH": f"{commands}:/usr/bin:/bin"}
    update = "        optimizer.step()\n"
    signalled = (
        f"{update}        if (step, rank) == (7, 1):\n            signal.raise_signal(signal.SIGUSR1)\n"
        "            signal.raise_signal(signal.SIGTERM)\n"  # torchrun makes it of a second SIGUSR1
    )
    stopped = run("requeue.py", 2, folder=tmp_path, edit=(update, signalled), **environ)
    left = names(checkpoints(tmp_path, "requeue-exp-1"))
    found = run("requeue.py", 2, folder=tmp_path, **environ)

    assert stopped.statuses == [0, 0], stopped.text
    assert stopped.text.count("stopped after step 7\n") == 1
    assert left == ["000007"]
    assert (tmp_path / "requeued").read_text(encoding="utf-8") == "requeue 17\n"
    assert found.text.count("resumed after step 7\n") == 1
    assert found.losses == pytest.approx(saved.losses, rel=EXACT)


def test_sigterm_alone_saves_and_ends(run: forked.Run, tmp_path: Path) -> None:
    """It may come from `scancel`: all ranks save after the same step, and nobody requeues the job."""
    commands = stand_ins(tmp_path, scontrol=f'echo "$@" >>{tmp_path}/requeued')
    update = "        optimizer.step()\n"
    signalled = f"{update}        if (step, rank) == (2, 1):\n            signal.raise_signal(signal.SIGTERM)\n"
    environ = {"SLURM_JOB_ID": "17", "PATH": f"{commands}:/usr/bin:/bin"}
    ended = run("requeue.py", 2, folder=tmp_path, edit=(update, signalled), **environ)

    assert ended.statuses == [0, 0], ended.text
    assert ended.text.count("stopped after step 2\n") == 1
    assert names(checkpoints(tmp_path, "requeue-run")) == ["000002"]
    assert not (tmp_path / "requeued").exists()


# The whole program ----------------------------------------------------------------------------------------------------

WHOLE = "full/llama_requeue.py"


def weights(outcome: forked.Outcome, name: str = "trained-run") -> dict[str, Any]:
    """Return the weights of a trained model."""
    (path,) = (outcome.folder / name).glob("*.safetensors")
    return load_file(path)


def assert_same(found: forked.Outcome, unbroken: forked.Outcome, name: str = "trained-run") -> None:
    """Assert that a run that was interrupted ended as the one that wasn't."""
    assert set(found.statuses) == {0}, found.text
    assert found.losses
    assert found.losses == pytest.approx(unbroken.losses[-len(found.losses) :], rel=EXACT)
    expected = weights(unbroken)
    assert max(float((each - expected[key]).abs().max()) for key, each in weights(found, name).items()) < 1e-3


@pytest.fixture(scope="module")
def start(llama: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a model to start from, with dropout."""
    folder = tmp_path_factory.mktemp("start") / "model"
    llama.make_small(folder, num_hidden_layers=2, attention_dropout=0.1)
    return folder


@pytest.fixture(scope="module")
def unbroken(start: Path, run: forked.Run) -> forked.Outcome:
    """Train with the whole program without a break."""
    return run(WHOLE, 2, start)


def test_whole_program_continues_after_a_signal(
    start: Path, unbroken: forked.Outcome, run: forked.Run, tmp_path: Path
) -> None:
    """It stops after a step, requeues once, and draws the same batches in the next start; dropout is the same too."""
    commands = stand_ins(tmp_path, scontrol=f'echo "$@" >>{tmp_path}/requeued')
    environ = {"SLURM_JOB_ID": "17", "SLURM_JOB_NAME": "llama", "PATH": f"{commands}:/usr/bin:/bin"}
    update = "        optimizer.step()\n"
    signalled = f"{update}        if (step, rank) == (7, 1):\n            signal.raise_signal(signal.SIGUSR1)\n"
    stopped = run(WHOLE, 2, start, folder=tmp_path, edit=(update, signalled), **environ)
    left = names(checkpoints(tmp_path, "requeue-llama"))
    found = run(WHOLE, 2, start, folder=tmp_path, **environ)

    assert stopped.text.count("stopped after step 7\n") == 1, stopped.text
    assert left == ["00000007"]
    assert (tmp_path / "requeued").read_text(encoding="utf-8") == "requeue 17\n"
    assert found.text.count("resumed after step 7\n") == 1
    assert_same(found, unbroken, "trained-llama")


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_whole_program_is_killed_at_twenty_instants(start: Path, run: forked.Run, tmp_path: Path) -> None:
    """Whenever it is killed, the next start continues from the newest whole checkpoint and ends as without the kill."""
    often = ("SAVE_EVERY = 10 ", "SAVE_EVERY = 1 ")
    began = time.monotonic()
    unbroken = run(WHOLE, 2, start, edit=often)
    seconds = time.monotonic() - began
    continued = compared = 0
    for instant in range(20):
        folder = tmp_path / str(instant)
        folder.mkdir()
        kill = f"import os, threading; threading.Timer({seconds * (instant + 0.5) / 20}, os._exit, (9,)).start()"
        run(WHOLE, 2, start, folder=folder, edit=often, before=kill)
        newest = max((path.name for path in folder.glob("checkpoints/*/0*")), default=None)
        found = run(WHOLE, 2, start, folder=folder, edit=often)
        if newest:
            continued += 1
            assert f"resumed after step {int(newest)}\n" in found.text
        if found.losses:  # not if it was killed after the last step
            compared += 1
            assert_same(found, unbroken)
    assert min(continued, compared) >= 8


# Damage ---------------------------------------------------------------------------------------------------------------


def largest(folder: Path) -> Path:
    """Return the file with most of the numbers."""
    return max(folder.glob("*.distcp"), key=lambda path: path.stat().st_size)


def test_damage_is_refused(copied: Path, run: forked.Run) -> None:
    """A checkpoint with a changed bit ends all ranks with one line that names it."""
    flip_a_bit(largest(checkpoints(copied) / "000030"))
    found = run("resume.py", 2, folder=copied)

    assert found.refusal.startswith("error: cannot load checkpoints/resume-run/000030: ")
    assert "Traceback" not in found.text


def test_checkpoint_of_another_model(copied: Path, run: forked.Run) -> None:
    """A checkpoint with other shapes ends all ranks with one line that says which."""
    narrower = ("WIDTH, HEADS, LAYERS = 64, 4, 4", "WIDTH, HEADS, LAYERS = 32, 4, 4")
    found = run("resume.py", 2, folder=copied, edit=narrower)

    assert found.refusal.startswith("error: cannot load checkpoints/resume-run/000030: ")
