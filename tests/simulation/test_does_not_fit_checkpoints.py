"""Checkpoints of the guide *When it does not fit*: other layouts read them, damage, the time limit."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support import forked
from support.accidents import flip_a_bit, signal_at_import
from support.continued import SAVED, read, write
from support.one_oracle import EXACT, IMPORTED, PROGRAMS, STEPS, TIED, TIED_LATER, Training, difference, train
from support.programs import stand_ins

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "does_not_fit"


FULL = pytest.mark.full

pytestmark = pytest.mark.usefixtures("quick_start")


@pytest.fixture(scope="module")
def ranks(quick_start: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[forked.Forked]:
    """Start the ranks."""
    with forked.forking(EXAMPLES, *IMPORTED) as process:
        yield forked.Forked(process, tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="module")
def one(ranks: forked.Forked) -> Training:
    """Train the oracle without a break: one process, in float64."""
    return train(ranks, PROGRAMS / "ddp.py", 1, 1)


# Other layouts --------------------------------------------------------------------------------------------------------


def test_another_layout_continues(one: Training, ranks: forked.Forked, tmp_path: Path) -> None:
    """In float64, the steps after a checkpoint are those of one process; bench/does_not_fit_checkpoints.py has all."""
    write(ranks, ("fsdp.py", 1, 3), tmp_path)
    found = read(ranks, ("pipeline.py", 1, 2), tmp_path, one)

    assert "resumed after step 10" in found.text
    assert difference(found, one).within(EXACT, EXACT)


@FULL
def test_tied_model_continues_where_it_is_tied(ranks: forked.Forked, tmp_path: Path) -> None:
    """Tensor parallelism reads the checkpoint of a tied model if it ties the parameters as well."""
    one = train(ranks, PROGRAMS / "ddp.py", 1, 1, edits=TIED)
    write(ranks, ("fsdp.py", 1, 2), tmp_path, TIED)
    tensor = ("tensor_parallel.py", 1, 2)

    assert difference(read(ranks, tensor, tmp_path, one, TIED_LATER), one).within(EXACT, EXACT)
    with pytest.raises(AssertionError, match=r"Missing key in checkpoint state_dict: optimizer.state.6.weight"):
        read(ranks, tensor, tmp_path, one)


# A run that dies, and one that is stopped -----------------------------------------------------------------------------


def start(
    ranks: forked.Forked,
    name: str,
    processes: int,
    folder: Path,
    edits: dict[str, str] | None = None,
    environ: dict[str, str] | None = None,
) -> Training:
    """Run a program whose checkpoints lie in a folder."""
    place = {f'Path("checkpoints", f"{Path(name).stem}-{{RUN}}")': f"Path({str(folder)!r})"}
    return train(ranks, PROGRAMS / name, 1, processes, edits=(edits or {}) | place, environ=environ)


def names(folder: Path) -> list[str]:
    """Return the names of what a folder shows."""
    return sorted(path.name for path in folder.iterdir())


def after(one: Training, found: Training, step: int) -> Training:
    """Return a training that continued after a step with the losses before it."""
    assert not any(found.statuses), found.text
    assert f"resumed after step {step}\n" in found.text
    return replace(found, losses=one.losses[:step] + found.losses)


def test_run_that_dies_while_it_saves(one: Training, ranks: forked.Forked, tmp_path: Path) -> None:
    """Half a checkpoint is not found, nor is a copy: the next run continues after the one before, and saves again."""
    renamed = "        if dist.get_rank() == 0:\n            beside.rename"
    died = start(ranks, "resume.py", 2, tmp_path, {renamed: f"        step == {STEPS} and os._exit(9)\n{renamed}"})
    left = names(tmp_path)
    shutil.copytree(tmp_path / "unfinished", tmp_path / "000011-good")
    (tmp_path / "000012.tar").write_bytes(b"")
    found = start(ranks, "resume.py", 2, tmp_path)

    assert died.statuses == [9, 9], died.text
    assert left == ["000010", "unfinished"]
    assert difference(after(one, found, SAVED), one).within(EXACT, EXACT)
    assert names(tmp_path) == ["000010", "000011-good", "000012.tar", "000020"]


NO_SPACE = 'Path("/dev/full").write_bytes(b"x")'
FAILS = {
    "one rank writes": (
        "        dcp.save(",
        f"        if dist.get_rank() == 1:\n            os.fsync = lambda _: {NO_SPACE}\n",
    ),
    "rank 0 renames": ("            beside.rename(", f"            {NO_SPACE}\n"),
}


@pytest.mark.parametrize("when", FAILS)
def test_save_that_fails(when: str, ranks: forked.Forked, tmp_path: Path) -> None:
    """An error of one rank, while it writes or after all have written, ends all with one line."""
    call, failing = FAILS[when]
    found = start(ranks, "resume.py", 2, tmp_path, {call: failing + call})

    assert found.statuses == [1, 1], found.text
    assert error_of(found).startswith(f"error: cannot save in {tmp_path}: [Errno 28] No space left"), found.text
    assert "Traceback" not in found.text


def test_second_job_in_a_folder(ranks: forked.Forked, tmp_path: Path) -> None:
    """It ends with one line, and leaves what the other job is writing."""
    (tmp_path / "unfinished").mkdir()
    with Path(f"{tmp_path}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = start(ranks, "resume.py", 2, tmp_path)

    assert found.statuses == [2, 2], found.text
    assert error_of(found).startswith(f"error: another job is training in {tmp_path}: "), found.text
    assert names(tmp_path) == ["unfinished"]


@FULL
def test_oracle_sees_an_optimizer_that_starts_anew(one: Training, ranks: forked.Forked, tmp_path: Path) -> None:
    """Without the optimizer's state the steps after a checkpoint are others."""
    write(ranks, ("fsdp.py", 1, 2), tmp_path)
    loop = "    for step in range(done + 1"
    found = start(ranks, "resume.py", 2, tmp_path, {loop: f"    optimizer.state.clear()\n{loop}"})

    assert not difference(after(one, found, SAVED), one).within(1000 * EXACT, 1000 * EXACT)


@FULL
def test_only_two_checkpoints_are_kept(ranks: forked.Forked, tmp_path: Path) -> None:
    """Each save deletes all checkpoints but the newest two, by number."""
    million = {"SAVE_EVERY = 10": "SAVE_EVERY = 5", "batches, step)\n\n": "batches, step + 999_984)\n\n"}
    found = start(ranks, "resume.py", 1, tmp_path, million)

    assert found.statuses == [0], found.text
    assert names(tmp_path) == ["1000004", "999999"]


def test_requeue_stops_at_a_signal(one: Training, ranks: forked.Forked, tmp_path: Path) -> None:
    """Signals stop all after the same step, saved and requeued once; the next start continues there."""
    folder = tmp_path / "checkpoints"
    third = "kill -USR1 $$"  # one that reaches scontrol as well
    commands = stand_ins(tmp_path, scontrol=f'{third}; echo "$@" >>{tmp_path}/requeued')
    environ = {"SLURM_JOB_ID": "17", "PATH": f"{commands}:/usr/bin:/bin"}
    update = "        optimizer.step()\n"
    signalled = {
        update: f"{update}        if (step, rank) == (7, 1):\n            signal.raise_signal(signal.SIGUSR1)\n"
        "            signal.raise_signal(signal.SIGTERM)\n"  # torchrun makes it of a second SIGUSR1
    }
    stopped = start(ranks, "requeue.py", 2, folder, signalled, environ)
    found = start(ranks, "requeue.py", 2, folder, environ=environ)

    assert stopped.statuses == [0, 0], stopped.text
    assert stopped.text.count("stopped after step 7\n") == 1
    assert len(stopped.losses) == 7
    assert (tmp_path / "requeued").read_text(encoding="utf-8") == "requeue 17\n"
    assert difference(after(one, found, 7), one).within(EXACT, EXACT)


def test_signal_before_torch_is_there(ranks: forked.Forked, tmp_path: Path) -> None:
    """A signal during the imports stops all after the first step; without `scontrol`, one line says what to do."""
    environ = {"SLURM_JOB_ID": "17", "SLURM_JOB_NAME": "exp/1", "PATH": "/nowhere"}
    before = f"os.chdir({str(tmp_path)!r})\n" + signal_at_import("torch")
    stopped = train(ranks, PROGRAMS / "requeue.py", 1, 2, before=before, environ=environ)

    assert stopped.statuses == [0, 0], stopped.text
    assert "stopped after step 1\n" in stopped.text
    assert stopped.text.count("saved; to continue, submit the job again") == 1
    assert names(tmp_path / "checkpoints" / "requeue-exp-1") == ["000001"]


def test_programs_and_jobs_keep_apart(ranks: forked.Forked, tmp_path: Path) -> None:
    """In one folder no program continues another's training, and a job's name chooses the run."""
    for name in ("requeue.py", "resume.py"):
        found = train(ranks, PROGRAMS / name, 1, 1, before=f"os.chdir({str(tmp_path)!r})\n", steps=10)
        assert len(found.losses) == 10, found.text

    assert names(tmp_path / "checkpoints") == ["requeue-run", "requeue-run.lock", "resume-run", "resume-run.lock"]


# Damage ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(ranks: forked.Forked, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a training on two ranks, with the checkpoints of steps 10 and 20."""
    folder = tmp_path_factory.mktemp("saved") / "checkpoints"
    assert start(ranks, "resume.py", 2, folder).statuses == [0, 0]
    return folder


def largest(folder: Path) -> Path:
    """Return the file with most of the numbers."""
    return max(folder.glob("*.distcp"), key=lambda path: path.stat().st_size)


def cut(folder: Path) -> None:
    """Keep the first half of a file."""
    path = largest(folder)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def mix(folder: Path) -> None:
    """Put a file of the other save in the place of one."""
    (other,) = (each for each in folder.parent.glob("[0-9]*") if each != folder)
    shutil.copy(other / "__1_0.distcp", folder)


REFUSED: dict[str, Callable[[Path], None]] = {
    "a file is cut short": cut,
    "a bit is changed": lambda folder: flip_a_bit(largest(folder)),
    ".metadata is missing": lambda folder: (folder / ".metadata").unlink(),
}
UNNOTICED = {"files of two saves": mix}


def damaged(saved: Path, folder: Path, damage: Callable[[Path], None]) -> Path:
    """Copy the checkpoints, damage that of step 10, and leave it as the newest."""
    shutil.copytree(saved, folder)
    damage(folder / "000010")
    shutil.rmtree(folder / "000020")
    return folder


def error_of(found: Training) -> str:
    """Return the one line that says what is wrong."""
    (line,) = [line for line in found.text.splitlines() if line.startswith("error: ")]
    return line


@pytest.mark.parametrize("what", REFUSED)
def test_damage_is_refused(what: str, saved: Path, ranks: forked.Forked, tmp_path: Path) -> None:
    """A checkpoint that is not whole ends all ranks with one line that names it."""
    folder = damaged(saved, tmp_path / "checkpoints", REFUSED[what])
    found = start(ranks, "resume.py", 2, folder)

    assert found.statuses == [2, 2], found.text
    assert error_of(found).startswith(f"error: cannot load {folder / '000010'}: "), found.text
    assert "Traceback" not in found.text


@FULL
@pytest.mark.parametrize("what", UNNOTICED)
def test_damage_that_goes_unnoticed(
    what: str, saved: Path, one: Training, ranks: forked.Forked, tmp_path: Path
) -> None:
    """Files of another save train on to another result; the seals of `sealed.py` tell."""
    folder = damaged(saved, tmp_path / "checkpoints", UNNOTICED[what])
    found = start(ranks, "resume.py", 2, folder)

    assert found.statuses == [0, 0], found.text
    assert "resumed after step " in found.text
    assert found.losses != pytest.approx(one.losses[SAVED:], abs=EXACT)


SEALED = {
    **REFUSED,
    **UNNOTICED,
    "the seal is changed": lambda folder: (folder / "seal.json").write_bytes(b"{"),
    "the seal is missing": lambda folder: (folder / "seal.json").unlink(),
}


@pytest.fixture(scope="module")
def sealed(ranks: forked.Forked, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the same of a training that seals them."""
    folder = tmp_path_factory.mktemp("sealed") / "checkpoints"
    assert start(ranks, "sealed.py", 2, folder).statuses == [0, 0]
    return folder


@FULL
@pytest.mark.parametrize("what", SEALED)
def test_damage_under_a_seal(what: str, sealed: Path, one: Training, ranks: forked.Forked, tmp_path: Path) -> None:
    """A folder that is not as it was sealed is set aside, and the training continues after the one before."""
    folder = tmp_path / "checkpoints"
    shutil.copytree(sealed, folder)
    SEALED[what](folder / "000020")
    found = start(ranks, "sealed.py", 2, folder)

    assert found.text.count(f"warning: {folder / '000020'} is damaged and set aside\n") == 1
    assert difference(after(one, found, SAVED), one).within(EXACT, EXACT)
    assert names(folder) == ["000010", "000020", "damaged-000020"]


def test_checkpoint_of_another_model(saved: Path, ranks: forked.Forked) -> None:
    """A checkpoint with other shapes ends all ranks with one line that says which."""
    narrower = {"WIDTH, HEADS, LAYERS = 64, 4, 4": "WIDTH, HEADS, LAYERS = 32, 4, 4"}
    found = start(ranks, "resume.py", 2, saved, narrower)

    assert found.statuses == [2, 2], found.text
    assert error_of(found).startswith(f"error: cannot load {saved / '000020'}: "), found.text
