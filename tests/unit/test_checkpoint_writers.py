"""Several jobs in one directory: no checkpoint is a mixture, and who fails names the other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from srunbook.checkpoint import CheckpointError, Checkpoints, Shard, _manifest, _saving, _writers

HERE = f"process {os.getpid()} on {os.uname().nodename}"


def state(job):
    """Make tensors that tell their job."""
    return {name: np.full(1000, job) for name in "ab"}


def jobs_in(restored):
    """Return the jobs of which a checkpoint has something."""
    return {
        restored.metadata["job"],
        *(int(value) for array in restored.tensors.values() for value in np.unique(array)),
    }


def outcome(call):
    """Return what a call raised, as text."""
    try:
        call()
    except CheckpointError as error:
        return str(error)
    return None


@pytest.fixture
def pause(monkeypatch):
    """Let two jobs of one process save the same step, one within the commit of the other; return what came of both."""

    def run(directory, moment):
        real = getattr(_saving.Save, moment)
        begun, done = threading.Event(), threading.Event()

        def second():
            Checkpoints(directory).save(1, state(2), {"job": 2})

        said = {}
        thread = threading.Thread(target=lambda: said.update({2: outcome(second)}))

        def held(save):
            if threading.current_thread() is thread:
                begun.set()
                done.wait()
            else:
                thread.start()
                begun.wait()
            real(save)

        monkeypatch.setattr(_saving.Save, moment, held)
        said[1] = outcome(lambda: Checkpoints(directory).save(1, state(1), {"job": 1}))
        done.set()
        thread.join()
        return said

    return run


@pytest.mark.parametrize("moment", ["write", "commit"])
def test_a_save_commits_what_it_wrote(tmp_path, pause, moment):
    """A job that begins to save while another is about to commit takes its place; the first names it, and fails."""
    said = pause(tmp_path, moment)

    assert jobs_in(Checkpoints(tmp_path).restore()) == {2}
    assert said[2] is None
    assert "step 1 was not saved" in said[1]
    assert f"{HERE} saves to the same directory" in said[1]


HOLD = """
import os, sys, time
import numpy as np
from srunbook.checkpoint import Checkpoints, _files
write = _files.write_part
def held(path, *arguments):
    print("writing", flush=True)
    sys.stdin.readline()
    return write(path, *arguments)
_files.write_part = held
Checkpoints(sys.argv[1]).save(1, {name: np.full(1000, 2) for name in "ab"}, {"job": 2})
"""


@pytest.fixture
def waits(monkeypatch):
    """Call a function whenever a save waits; count how often. A minute is three tenths of a second."""
    monkeypatch.setattr(_writers, "PATIENCE", 0.3)
    seen = []

    def begin(function=lambda: None):
        def sleep(seconds):
            seen.append(seconds)
            function()
            time.sleep(seconds)

        monkeypatch.setattr(_writers, "time", SimpleNamespace(time=time.time, monotonic=time.monotonic, sleep=sleep))
        return seen

    return begin


@pytest.fixture
def saving(tmp_path):
    """Start another job that saves step 1, and holds within; return its process."""
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "writing\n"
        yield other
        other.kill()


def let_go(process):
    process.stdin.close()
    process.wait()


def test_a_save_waits_for_another_job(tmp_path, saving, waits):
    """While another job saves, a save waits; a step that the other has saved then is not overwritten."""
    waited = waits(lambda: let_go(saving) if saving.poll() is None else None)

    said = outcome(lambda: Checkpoints(tmp_path).save(1, state(1), {"job": 1}))

    assert waited
    assert f"already has step 1, saved by process {saving.pid} on" in said
    assert jobs_in(Checkpoints(tmp_path).restore()) == {2}


def test_a_save_does_not_wait_for_ever(tmp_path, saving, waits):
    """A job that still saves after a minute is named, and is left alone."""
    (partial,) = tmp_path.glob("step-*.partial")
    waits(lambda: os.utime(partial))

    said = outcome(lambda: Checkpoints(tmp_path).save(2, state(1), {"job": 1}))

    assert f"process {saving.pid} on {os.uname().nodename} has been saving to {tmp_path} as {partial.name}" in said
    let_go(saving)
    assert jobs_in(Checkpoints(tmp_path).restore()) == {2}


def test_a_job_that_was_killed_is_not_waited_for(tmp_path, saving, waits):
    """Where the process is gone, there is nothing to wait for."""
    saving.kill()
    saving.wait()
    waited = waits()

    Checkpoints(tmp_path).save(2, state(1), {"job": 1})

    assert not waited
    assert [path.name for path in tmp_path.iterdir()] == ["step-0000000002"]


@pytest.mark.parametrize(("job", "must_wait"), [("4711", False), ("4712", True), (None, True)])
def test_a_job_on_another_node(tmp_path, saving, waits, monkeypatch, job, must_wait):
    """On another node, an earlier attempt of this job has ended, and any other job that was silent for a minute."""
    saving.kill()
    (partial,) = tmp_path.glob("step-*.partial")
    note = json.loads((partial / "save.json").read_text())["content"]
    note["writer"].update(host="another", job="4711", attempt="0")
    (partial / "save.json").write_bytes(_manifest.seal(note))
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    if job:
        monkeypatch.setenv("SLURM_JOB_ID", job)
    waited = waits()

    Checkpoints(tmp_path).save(2, state(1), {"job": 1})

    assert bool(waited) == must_wait
    assert [path.name for path in tmp_path.iterdir()] == ["step-0000000002"]


def test_the_one_before_is_named(tmp_path):
    """A job that comes to a directory with newer steps says who saved them."""
    Checkpoints(tmp_path).save(5, state(1), {"job": 1})

    with pytest.raises(CheckpointError, match=f"already has step 5, saved by {HERE}"):
        Checkpoints(tmp_path).save(3, state(2), {"job": 2})


def test_a_step_saved_meanwhile(tmp_path, monkeypatch):
    """A save is not committed beside a newer step that another job has saved since it began."""
    other = Checkpoints(tmp_path)
    write = _saving.Save.write
    others = iter([lambda: other.save(7, state(2), {"job": 2})])

    def slow(save):
        write(save)
        next(others, lambda: None)()

    monkeypatch.setattr(_saving.Save, "write", slow)

    said = outcome(lambda: Checkpoints(tmp_path).save(6, state(1), {"job": 1}))

    assert HERE in said
    assert other.steps() == [7]


def test_the_job_is_named(tmp_path, monkeypatch):
    """In a Slurm job, its number is noted with the process and the node."""
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    Checkpoints(tmp_path).save(5, state(1), {"job": 1})

    with pytest.raises(CheckpointError, match=f"saved by job 4711, {HERE}"):
        Checkpoints(tmp_path).save(3, state(2), {"job": 2})


def test_a_writer_nobody_can_read(tmp_path):
    """What stands in the note of a writer comes from a file: it is shown on one line, or left out."""
    Checkpoints(tmp_path).save(5, state(1), {"job": 1})
    note = tmp_path / "step-0000000005" / "save.json"
    content = json.loads(note.read_text())["content"]
    for writer in ({"host": "a\nb" * 1000, "pid": 1, "job": None}, {"host": 3}, None, "x"):
        note.write_bytes(_manifest.seal(content | {"writer": writer}))
        with pytest.raises(CheckpointError, match=r"\A[^\n]{1,500}\Z") as raised:
            Checkpoints(tmp_path).save(3, state(2), {"job": 2})
        assert "already has step 5" in str(raised.value)


def test_two_jobs_of_two_processes(tmp_path, processes):
    """Two jobs of two processes each that save the same steps at once never mix, and all of a job hear the same."""
    jobs = {job: processes(2) for job in (1, 2)}
    together = threading.Barrier(4)
    rounds = 15

    def save(job, rank):
        said = []
        for round_ in range(rounds):
            checkpoints = Checkpoints(tmp_path / str(round_), **jobs[job].arguments(rank))
            rows = slice(500 * rank, 500 * rank + 500)
            tensors = {"a": np.full(1000, job), "b": Shard(np.full(500, job), (rows,), (1000,))}
            together.wait()
            said.append(outcome(lambda: checkpoints.save(1, tensors, {"job": job})))  # noqa: B023
        return said

    results = {}
    teams = [
        threading.Thread(target=lambda job=job: results.update({job: jobs[job].run(lambda rank: save(job, rank))}))
        for job in jobs
    ]
    for team in teams:
        team.start()
    for team in teams:
        team.join()

    for round_ in range(rounds):
        restored = Checkpoints(tmp_path / str(round_)).restore()
        saved = {job for job in jobs if all(said[round_] is None for said in results[job])}
        assert len(saved) <= 1, round_
        for job in set(jobs) - saved:
            assert all(said[round_] for said in results[job]), f"round {round_}: a process of job {job} heard nothing"
        assert saved == (jobs_in(restored) if restored else set()), round_


def test_two_jobs_restore(tmp_path, processes):
    """Two jobs of two processes each that restore at once do not read each other's choice."""
    Checkpoints(tmp_path).save(1, state(1), {"job": 1})
    jobs = [processes(2), processes(2)]
    together = threading.Barrier(4)

    def restore(job, rank):
        found = []
        for _ in range(15):
            expect = {"other": (3,)} if job else state(1)
            checkpoints = Checkpoints(tmp_path, **jobs[job].arguments(rank))
            together.wait()
            try:
                found.append(checkpoints.restore(expect=expect).step)
            except CheckpointError:
                found.append("another model")
        return found

    results = {}
    teams = [
        threading.Thread(target=lambda job=job: results.update({job: jobs[job].run(lambda rank: restore(job, rank))}))
        for job in (0, 1)
    ]
    for team in teams:
        team.start()
    for team in teams:
        team.join()

    assert results[0] == [[1] * 15] * 2
    assert results[1] == [["another model"] * 15] * 2
