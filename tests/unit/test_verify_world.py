"""`srunbook verify` judges every step that launched tasks, every rank of it, and every line that a rank printed."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.left_behind import COMPLETED, Left, end, expect, lay_out, start

from srunbook import verify
from srunbook.slurm import Accounting
from srunbook.verify import Cause, Outcome

JOB = "17|COMPLETED|0:0|2||00:01:30|node[1-2]\n"


@pytest.fixture
def left(tmp_path: Path) -> Left:
    """Lay out what a job of two ranks and three epochs leaves behind."""
    return lay_out(tmp_path)


@pytest.fixture
def job(tmp_path: Path) -> Left:
    """Make a folder for a job without a folder of results, whose ranks print into one log."""
    return Left(tmp_path)


def log(left: Left, *lines: str) -> None:
    """Write the log of the job."""
    (left.folder / "slurm-17.out").write_text("\n".join([*lines, ""]))


def steps(*tasks: int, job: str = JOB, nodes: str = "node[1-2]") -> str:
    """Return the rows of a job with steps of so many tasks; those of one task are on node1."""
    return job + "".join(
        f"17.{number}|COMPLETED|0:0|{1 if count == 1 else 2}|{count}|00:00:09|{'node1' if count == 1 else nodes}\n"
        for number, count in enumerate(tasks)
    )


def outcome(report: verify.Report, name: str) -> Outcome:
    """Return the outcome of one check."""
    (check,) = [check for check in report.checks if check.name == name]
    return check.outcome


TWO = [start(0), start(1), end(0), end(1)]


# Steps and worlds


@pytest.mark.parametrize("tasks", [(4,), (4, 1), (1, 4), (4, 1, 1), (3, 1)])
def test_too_few_ranks_for_their_step(job, tasks):
    """A world of 2 in a step of 4 tasks is wrong, also beside a step of one task, where 2 ranks would fit."""
    job.accounting = steps(*tasks)
    log(job, *TWO)

    expect(job.judge(), Cause.WORLD_SIZE, f"world size 2 instead of {max(tasks)}")


@pytest.mark.parametrize("tasks", [(4, 2), (2, 4), (8, 2, 1)])
def test_a_larger_step_that_is_silent(job, tasks):
    """A world of 2 may be that of a step of 2 tasks; then the larger step printed nothing, and is not proven."""
    job.accounting = steps(*tasks)
    log(job, *TWO)
    report = job.judge()

    assert report.cause is Cause.NOT_PROVEN, report.text()
    (world,) = [check for check in report.checks if check.name == "world"]
    assert f"17.{tasks.index(max(tasks))} of {max(tasks)} tasks printed no rank line" in world.evidence


@pytest.mark.parametrize("tasks", [(1, 2), (2, 1), (1, 1, 2), (2, 2)])
def test_smaller_steps_that_are_silent(job, tasks):
    """Steps that copy data, or name the nodes, print no rank lines; the report names them."""
    job.accounting = steps(*tasks)
    log(job, *TWO)
    report = job.judge()

    assert report.cause is Cause.VERIFIED, report.text()
    assert "printed no rank line" in report.text()


def test_each_step_has_its_world(job):
    """Steps that ran one after the other, of one size or of several, are judged one by one."""
    job.accounting = steps(2, 2, 1)
    log(job, *TWO, *TWO, start(0, 1), end(0, 1))
    assert job.judge().cause is Cause.VERIFIED, job.judge().text()
    log(job, *TWO, start(0), start(1), end(0), start(0, 1), end(0, 1))
    expect(job.judge(), Cause.UNFINISHED, "rank 1 started")
    log(job, *TWO, start(0), start(1), end(0), end(1, params="cd" * 6), start(0, 1), end(0, 1))
    expect(job.judge(), Cause.PARAMETERS, "rank 1 has cdcd")
    log(job, *TWO, *TWO, *TWO)
    assert job.judge().cause is not Cause.VERIFIED


def test_a_launcher_in_each_task(job):
    """Two tasks that start two ranks each make a world of 4; one task alone cannot reach two nodes."""
    ranks = [start(rank, 4, host=f"node{rank // 2 + 1}") for rank in range(4)]
    log(job, *ranks, *(end(rank, 4) for rank in range(4)))
    job.accounting = steps(1, 2)
    assert job.judge().cause is Cause.VERIFIED, job.judge().text()
    job.accounting = steps(1)
    expect(job.judge(), Cause.WORLD_SIZE, "world size 4 instead of 1 on 1 node: ")
    job.accounting = steps(2)
    log(
        job,
        *[line.replace("host=node2", "host=node1" if rank == 2 else "host=node2") for rank, line in enumerate(ranks)],
        *(end(rank, 4) for rank in range(4)),
    )
    expect(job.judge(), Cause.HOSTS, r"3 ranks of 17\.0 ran on node1; each of its 2 tasks started 2 ranks")


@pytest.mark.parametrize("tasks", ["", "0"])
def test_tasks_that_nobody_counted(job, tasks):
    """Where sacct does not say how many tasks a step had, the world size is not proven."""
    job.accounting = JOB + f"17.0|COMPLETED|0:0|2|{tasks}|00:00:09|node[1-2]\n"
    log(job, *TWO)

    assert job.judge().cause is Cause.NOT_PROVEN
    assert outcome(job.judge(), "world") is Outcome.NOT_PROVEN


def test_ranks_of_a_step_on_other_nodes_than_its_own(job):
    """All nodes of the job are used, and yet a step ran elsewhere than Slurm placed it."""
    job.accounting = (
        "17|COMPLETED|0:0|4||00:01:30|node[1-4]\n"
        "17.0|COMPLETED|0:0|2|2|0|node[1-2]\n17.1|COMPLETED|0:0|2|2|0|node[3-4]\n"
    )
    first, second = (
        [start(0, host=hosts[0]), start(1, host=hosts[1]), end(0), end(1)]
        for hosts in (("node1", "node2"), ("node3", "node4"))
    )
    log(job, *first, *second)
    assert job.judge().cause is Cause.VERIFIED, job.judge().text()
    log(job, *first, *[line.replace("node4", "node2") for line in second], start(0, 1))
    assert job.judge().cause is not Cause.VERIFIED
    job.accounting = (
        job.accounting.replace("node[1-4]", "node[1-3]").replace("|4||", "|3||").replace("node[3-4]", "node[1,3]")
    )
    log(job, *first, *[line.replace("node4", "node2") for line in second])
    expect(job.judge(), Cause.HOSTS, r"2 ranks of 17\.1 ran on node\[3,2\]; the step was given node\[1,3\]")


def test_all_ranks_on_foreign_hosts(job):
    """Names of hosts that are all unknown cannot be compared, and so prove nothing."""
    log(job, start(0, host="gpu7"), start(1, host="gpu8"), end(0), end(1))
    report = job.judge()

    assert report.cause is Cause.NOT_PROVEN
    assert outcome(report, "hosts") is Outcome.NOT_PROVEN


# Attempts


def test_one_rank_of_the_last_attempt_is_missing(job):
    """A rank that ended before the others began anew took no part in the last attempt."""
    job.accounting = steps(2, job=JOB.replace("COMPLETED", "REQUEUED")) + steps(2)
    log(job, *TWO, start(0), end(0))
    expect(job.judge(), Cause.RANK_MISSING, "no start line of rank 1")
    log(job, *TWO, *TWO)
    assert job.judge().cause is Cause.VERIFIED


def test_a_rank_died_before_its_first_line(job):
    """In an attempt that ended early, one rank may have said nothing yet; both take part in the last one."""
    job.accounting = steps(2, job=JOB.replace("COMPLETED", "NODE_FAIL")) + steps(2)
    for order in ([start(0), start(1)], [start(1), start(0)]):
        log(job, start(0, pid=9), *order, end(0), end(1))
        assert job.judge().cause is Cause.VERIFIED, job.judge().text()


def test_logs_of_ranks_do_not_tell_the_attempt(left):
    """Where each rank has its own log, and one started more often, nothing tells which attempt the other's is."""
    left.accounting = JOB.replace("COMPLETED", "REQUEUED") + COMPLETED
    left.logs[0].insert(0, start(0, pid=9))
    left.write()

    assert left.judge().cause is Cause.NOT_PROVEN


def test_a_second_process_was_the_same_rank(job):
    """Without a second attempt, a rank that started twice while the others started once may be two processes."""
    log(job, start(0), start(0, host="node2", pid=99), start(1), end(0), end(1))
    assert job.judge().cause is Cause.HOSTS
    log(job, start(0), start(0, pid=99), start(1), end(0), end(1))
    report = job.judge()

    assert report.cause is Cause.NOT_PROVEN
    assert "rank 0 started 2 times" in report.text()


def test_two_end_lines_after_a_requeue(job):
    """A start line of an earlier attempt does not account for a second end line in the last one."""
    job.accounting = steps(2, job=JOB.replace("COMPLETED", "NODE_FAIL")) + steps(2)
    log(job, *TWO[:2], *TWO, end(0, params="cd" * 6))

    expect(job.judge(), Cause.RANK_TWICE, "two processes of rank 0 ran at once")


def test_the_last_attempt_ran_nothing(job):
    """Lines of an earlier attempt prove nothing about the last one, which started no step."""
    job.accounting = steps(2, job=JOB.replace("COMPLETED", "REQUEUED")) + JOB
    log(job, *TWO)

    expect(job.judge(), Cause.RAN_NOTHING, "sacct has no steps, and no step of srun")


def test_another_job_wrote_into_the_log_before(job):
    """A job that goes on in another one's folder appends to its log; only its own lines count."""
    before = [line.replace("job=17", "job=16") for line in TWO]
    log(job, *before, *TWO)
    assert job.judge().cause is Cause.VERIFIED, job.judge().text()
    log(job, *TWO, *before)
    assert job.judge().cause is not Cause.VERIFIED
    log(job, start(0), start(1, job=16), end(0), end(1))
    expect(job.judge(), Cause.RANK_LINE_DAMAGED, "slurm-17.out is of job 16; expected job 17")


def test_no_accounting_expects_one_world(job):
    """Where sacct cannot be asked, one world is one world."""
    log(job, *TWO)
    missing = Accounting(problem="this machine has no sacct")
    report = verify.judge(verify.collect("17", folder=job.folder, ask=lambda job: missing))

    assert report.cause is Cause.NOT_PROVEN
    assert outcome(report, "parameters") is Outcome.PASSED
