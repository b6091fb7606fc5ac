"""How the processes of a job find each other in a directory that others use as well."""

from __future__ import annotations

import os
import threading

import pytest

from srunbook.checkpoint import CheckpointError, _meeting
from srunbook.checkpoint._meeting import meet

HERE = f"process {os.getpid()} on {os.uname().nodename}"


def names(directory):
    """List what is in a directory."""
    return sorted(path.name for path in directory.iterdir())


def meet_all(directory, group):
    """Let all processes of a group meet; return what came of it on each."""
    return group.run(lambda rank: meet(directory, rank, group.count, group.barrier.wait))


def test_one_name(tmp_path, processes):
    """All processes of a job return the same name, another job another, and nothing is left."""
    found = [set(meet_all(tmp_path, processes(count))) for count in (2, 5, 5)]

    assert [len(each) for each in found] == [1, 1, 1]
    assert len(set.union(*found)) == 3
    assert names(tmp_path) == []


def test_an_offer_of_a_killed_job(tmp_path, processes):
    """Offers that nobody answers any more, whole or half written, are in nobody's way."""
    group = processes(2)
    for number in range(2):
        place = tmp_path / f".meet-{number:016x}"
        place.mkdir()
        if number:
            _meeting._write(place / "offer.json")
    (tmp_path / ".meet-000000000000000f").touch()

    assert len(set(meet_all(tmp_path, group))) == 1


def meet_at_once(directory, processes, count, enter=lambda job: None):
    """Let two jobs meet at once; return what came of it, for each job and process.

    Args:
        directory: The directory.
        processes: The fixture.
        count: Number of processes of each job.
        enter: Function that each process calls first, with the number of its job.
    """
    groups = [processes(count), processes(count)]
    start = threading.Barrier(2 * count)

    def one(job, rank):
        enter(job)
        start.wait()
        return meet(directory, rank, count, groups[job].barrier.wait)

    both = processes(2)
    return both.run(lambda job: groups[job].run(lambda rank: one(job, rank)))


def test_two_jobs_at_once(tmp_path, processes):
    """Of two jobs that meet at once, each finds its own processes, or all of them say that there are others."""
    for _ in range(20):
        results = meet_at_once(tmp_path, processes, 3)

        for found in results:
            if isinstance(found[0], str):
                assert found == [found[0]] * 3
            else:
                assert all(isinstance(error, CheckpointError) for error in found)
                assert "processes of another job have answered" in str(found[0])
                assert str(found[0]).count(HERE) > 2
        assert results[0][0] != results[1][0]
        assert names(tmp_path) == []


def test_two_jobs_with_different_numbers(tmp_path, processes, monkeypatch):
    """Jobs that Slurm has given different numbers do not answer each other, so that both always find theirs."""
    jobs = threading.local()
    monkeypatch.setattr(_meeting, "_job", lambda: [str(jobs.number), "", ""])
    for _ in range(20):
        results = meet_at_once(tmp_path, processes, 2, lambda job: setattr(jobs, "number", job))

        assert all(isinstance(found[0], str) and found == [found[0]] * 2 for found in results), results


@pytest.mark.parametrize("failing", [0, 1])
def test_a_process_that_cannot_write(tmp_path, processes, monkeypatch, failing):
    """Where one process cannot write, none returns a name, and the barrier is called as often as ever."""
    group = processes(3)
    here = threading.local()
    real = _meeting.write_small

    def refuse(path, data):
        if here.rank == failing:
            raise PermissionError(13, "Permission denied", str(path))
        real(path, data)

    def one(rank):
        here.rank = rank
        return meet(tmp_path, rank, 3, group.barrier.wait)

    monkeypatch.setattr(_meeting, "write_small", refuse)
    errors = group.run(one)

    assert isinstance(errors[failing], PermissionError)
    assert all(isinstance(error, CheckpointError) for rank, error in enumerate(errors) if rank != failing)
    assert group.barrier.n_waiting == 0
    assert not group.barrier.broken


def test_a_process_that_sees_another_directory(tmp_path, processes):
    """A process whose file system is not shared is named by process 0."""
    group = processes(2)
    for rank in range(2):
        (tmp_path / str(rank)).mkdir()

    zero, one = group.run(lambda rank: meet(tmp_path / str(rank), rank, 2, group.barrier.wait))

    assert "process 1 of 2 did not answer" in str(zero)
    assert "process 0 did not begin" in str(one)
