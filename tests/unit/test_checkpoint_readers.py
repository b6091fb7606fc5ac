"""Reading while others save, and reading where nothing can be written."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest

from srunbook.checkpoint import CheckpointError, Checkpoints, _choosing, _reading


def state(step):
    """Make a small state that tells its step."""
    return {"weight": np.full((4, 3), step, np.float32), "count": np.array(step)}


@pytest.fixture
def saving_meanwhile(monkeypatch):
    """Save a step each time before a data file is read, for so many times."""

    def start(checkpoints, times):
        real = _reading.read_part
        steps = iter(range(100, 100 + times))

        def meanwhile(path, *arguments):
            if (step := next(steps, None)) is not None:
                checkpoints.save(step, state(step))
            return real(path, *arguments)

        monkeypatch.setattr(sys.modules["srunbook.checkpoint._restoring"], "read_part", meanwhile)

    return start


def test_the_step_is_removed_while_it_is_read(tmp_path, saving_meanwhile, caplog):
    """A reader whose checkpoint a running job removes takes the newer one; nothing counts as damaged or missing."""
    writer = Checkpoints(tmp_path, keep=1)
    writer.save(1, state(1))
    saving_meanwhile(writer, 3)
    reader = Checkpoints(tmp_path)

    restored = reader.restore()

    assert restored.step == 102
    assert np.all(restored.tensors["weight"] == 102)
    assert not caplog.records
    reader.save(200, state(200))
    assert not list(tmp_path.glob("damaged-*"))


def test_the_steps_are_removed_after_they_were_listed(tmp_path, monkeypatch, caplog):
    """A reader that finds nothing where it has just seen checkpoints looks again; it does not take it for none."""
    writer = Checkpoints(tmp_path, keep=2)
    writer.save(1, state(1))
    writer.save(2, state(2))
    real, newer = _choosing.steps_in, iter([3, 4])

    def listed(directory):
        found = real(directory)
        for step in newer:
            writer.save(step, state(step))
        return found

    monkeypatch.setattr(_choosing, "steps_in", listed)

    assert Checkpoints(tmp_path).restore().step == 4
    assert not caplog.records


def test_steps_are_removed_faster_than_read(tmp_path, saving_meanwhile):
    """A reader that never gets to the end of a checkpoint says so, and does not take it for none."""
    writer = Checkpoints(tmp_path, keep=1)
    writer.save(1, state(1))
    saving_meanwhile(writer, 1000)

    with pytest.raises(CheckpointError, match=r"faster than they can be read; it should keep more"):
        Checkpoints(tmp_path).restore()


def test_the_step_is_replaced_while_it_is_read(tmp_path, monkeypatch, caplog):
    """A checkpoint of the same step in the place of the one that is being read is no damage."""
    other = Checkpoints(tmp_path / "other")
    other.save(1, {"weight": np.ones((4, 3), np.float32), "count": np.array(7)})
    Checkpoints(tmp_path / "here").save(1, state(1))
    folder = tmp_path / "here" / "step-0000000001"
    real = _reading.read_part
    changes = iter([lambda: (folder.rename(tmp_path / "aside"), (other.directory / folder.name).rename(folder))])

    def replacing(path, *arguments):
        next(changes, lambda: None)()
        return real(path, *arguments)

    monkeypatch.setattr(sys.modules["srunbook.checkpoint._restoring"], "read_part", replacing)

    assert Checkpoints(tmp_path / "here").restore().tensors["count"] == 7
    assert not caplog.records


def test_a_damaged_step_that_was_replaced_is_not_set_aside(tmp_path):
    """What a job found damaged, and another has saved anew since, is neither set aside nor overwritten."""
    first = Checkpoints(tmp_path)
    first.save(1, state(1))
    first.save(2, state(2))
    (tmp_path / "step-0000000002" / "manifest.json").write_text("{}")
    assert first.restore().step == 1
    other = Checkpoints(tmp_path)
    other.restore()
    other.save(2, {"weight": np.zeros(3)})

    with pytest.raises(CheckpointError, match="already has step 2, saved by process"):
        first.save(2, state(2))
    assert other.restore().tensors["weight"].shape == (3,)


READ_ONLY = """
import logging, os, sys, threading
from srunbook.checkpoint import Checkpoints
logging.basicConfig(level=logging.CRITICAL)
if os.geteuid() == 0:
    os.seteuid(65534)  # root may write anywhere; this process becomes somebody else, and stays so
barrier = threading.Barrier(2)
steps = {}
def restore(rank):
    checkpoints = Checkpoints(sys.argv[1], process_id=rank, num_processes=2, barrier=barrier.wait)
    for _ in range(2):
        restored = checkpoints.restore(part=lambda name, shape: (slice(2 * rank, 2 * rank + 2),) if shape else None)
        steps[rank] = (restored.step, restored.tensors["weight"].tolist()) if restored else None
threads = [threading.Thread(target=restore, args=(rank,)) for rank in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(steps[0], steps[1], sep="\\n")
"""


@pytest.fixture
def read_only():
    """Make a directory with two checkpoints that another user may only read; outside of the folders of pytest."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        directory = Path(place) / "saved"
        for step in (1, 2):
            Checkpoints(directory).save(step, state(step))
        directory.chmod(0o555)
        yield directory
        directory.chmod(0o755)


def lines_of(directory):
    done = subprocess.run([sys.executable, "-c", READ_ONLY, str(directory)], check=True, capture_output=True, text=True)
    assert not done.stderr
    return done.stdout.splitlines()


def test_two_processes_read_a_read_only_directory(read_only):
    """Several processes restore from a directory that they cannot write, and leave it as it was."""
    before = sorted(read_only.rglob("*"))
    values = [[2.0] * 3] * 2

    assert lines_of(read_only) == [f"(2, {values})"] * 2
    assert sorted(read_only.rglob("*")) == before


def test_two_processes_read_a_read_only_directory_with_damage(read_only):
    """A damage in the part that only one of them needs is found by both, and both read the older checkpoint."""
    path = read_only / "step-0000000002" / "part-00000.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    values = [[1.0] * 3] * 2

    assert lines_of(read_only) == [f"(1, {values})"] * 2


def test_two_processes_where_there_is_nothing(tmp_path, processes):
    """Restoring makes no directory, whether one process does it or several."""
    group = processes(2)
    directory = tmp_path / "none"

    assert group.run(lambda rank: Checkpoints(directory, **group.arguments(rank)).restore()) == [None, None]
    assert not directory.exists()


def test_a_directory_that_changes_under_processes_that_cannot_write(tmp_path, processes, monkeypatch):
    """Processes that choose for themselves notice that they may have chosen differently."""
    Checkpoints(tmp_path).save(1, state(1))
    monkeypatch.setattr(_choosing, "_write", lambda path, choice: False)
    group = processes(2)
    assert [each.step for each in group.run(lambda one: Checkpoints(tmp_path, **group.arguments(one)).restore())] == [
        1,
        1,
    ]

    both_have_looked = threading.Barrier(2)
    calls = [0, 0]

    def restore(rank):
        def barrier():
            calls[rank] += 1
            if calls[rank] == 5:  # after four to meet
                both_have_looked.wait()
                if rank == 0:
                    Checkpoints(tmp_path).save(2, state(2))
            group.barrier.wait()

        return Checkpoints(tmp_path, **group.arguments(rank) | {"barrier": barrier}).restore()

    for error in group.run(restore):
        assert isinstance(error, CheckpointError)
        assert f"checkpoints were added to {tmp_path} or removed while it was read" in str(error)
