"""`srunbook verify` judges every step that launched tasks, every rank of it, and every line that a rank printed."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.left_behind import COMPLETED, Left, end, epoch_line, epoch_row, expect, lay_out, start

from srunbook import verify
from srunbook.verify import Accounting, Cause, Outcome

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


def test_tasks_that_nobody_counted(job):
    """Where sacct does not say how many tasks a step had, the world size is not proven."""
    job.accounting = JOB + "17.0|COMPLETED|0:0|2||00:00:09|node[1-2]\n"
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


# Steps of the optimizer


def test_one_rank_made_no_step(left):
    """A rank that made no step is found, though another one made some."""
    left.logs[1][-1] = end(1, steps=0)
    left.write()

    expect(left.judge(), Cause.RAN_NOTHING, "rank 1 ended with 0 steps; the others made 30")


def test_ranks_made_different_numbers_of_steps(left):
    """Ranks that train one model make equally many steps; where they do not, it is not proven."""
    left.logs[1][-1] = end(1, steps=29)
    left.write()
    report = left.judge()

    assert report.cause is Cause.NOT_PROVEN
    assert outcome(report, "ends") is Outcome.NOT_PROVEN


@pytest.mark.parametrize("loss", ["nan", "inf", "-inf"])
def test_a_loss_at_the_end_is_not_finite(job, loss):
    """A rank whose last loss is not finite is found, with or without metrics.csv."""
    log(job, start(0), start(1), end(0), end(1, loss=loss))

    expect(job.judge(), Cause.NOT_FINITE, f"rank 1 ended with loss {loss}")


def test_ranks_were_asked_for_different_epochs(job):
    """Ranks that were asked for different numbers of epochs did not run one program."""
    log(job, start(0), start(1, epochs=4), end(0), end(1))

    expect(job.judge(), Cause.EPOCH_ORDER, "rank 0 was asked for 3 epochs and rank 1 for 4")


# Lines too many


@pytest.mark.parametrize("params", ["cd" * 6, "ab" * 6])
def test_two_end_lines_of_one_rank(left, params):
    """A rank that started once ended once: a second end line, of whatever hash, is not dropped."""
    left.logs[0].append(end(0, params=params))
    left.write()

    expect(left.judge(), Cause.RANK_TWICE, "rank 0 ended more often than it started in .*rank_0.log")


@pytest.mark.parametrize("line", [end(7, 8), end(1, 2)])
def test_an_end_without_start(left, line):
    """An end line of a rank that never started is found, inside and outside of the world."""
    left.logs = {0: left.logs[0], 1: [line] if line == end(1) else [*left.logs[1], line]}
    left.write()

    expect(left.judge(), Cause.RANK_MISSING, "rank [17] ended and has no start line in .*rank_1.log")


@pytest.mark.parametrize("name", ["rank_2.log", "rank_00.log", "rank_7.log"])
@pytest.mark.parametrize("text", ["", "hello\n"])
def test_a_log_without_a_line(left, name, text):
    """A log of a rank that the world does not have, and that says nothing, is one too many."""
    (left.results / name).write_text(text)

    expect(left.judge(), Cause.RANK_MISSING, f"{name} has no start line; the world has 2 ranks")


def test_a_rank_of_other_digits_is_no_log_of_a_rank(left):
    """Only ASCII digits name a rank."""
    (left.results / "rank_\u0663.log").write_text("")

    assert left.judge().cause is Cause.VERIFIED


@pytest.mark.parametrize(
    "text",
    [
        f"rank {10**30}/{10**31} start host=node3",
        f"rank {10**30}/{10**31} end steps=1",
        "rank \u0663/\u0664 start",
        "rank -1/2 start host=node2",
        "rank 1e0/2 end",
        "rank 0.5/2 start",
        "rank +1/2 start",
        "rank 1_0/20 start",
        "[1] rank 10**30/10**31 start",
    ],
)
def test_a_rank_that_is_no_number(left, text):
    """A rank line with an impossible number is damaged, and no prose."""
    left.logs[0].insert(1, text)
    left.write()

    expect(left.judge(), Cause.RANK_LINE_DAMAGED, "expected whole numbers of at most 18 digits")


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


# Programs without rank lines


@pytest.mark.parametrize("text", ["", "training\ndone\n"])
def test_a_program_that_prints_no_rank_lines(job, text):
    """A good job whose program prints no rank lines is not proven, and no failure."""
    (job.folder / "slurm-17.out").write_text(text)
    report = job.judge()

    assert report.cause is Cause.NOT_PROVEN, report.text()
    assert {outcome(report, name) for name in ("job", "steps")} == {Outcome.PASSED}
    assert {check.outcome for check in report.checks[2:]} == {Outcome.NOT_PROVEN}
    assert any("rank 0/2 start" in check.next_step for check in report.checks)


# Numbers


def test_no_number_agrees_with_nothing(left):
    """Lines of epochs that share no column with metrics.csv prove nothing about its numbers."""
    left.logs[0] = [line.replace("_", "-") if line.startswith("epoch") else line for line in left.logs[0]]
    left.write()
    report = left.judge()

    assert report.cause is Cause.NOT_PROVEN
    assert outcome(report, "losses") is Outcome.NOT_PROVEN


def test_one_epoch_without_a_number(left):
    """One epoch whose line has no number to compare is enough for that."""
    left.logs[0][2] = "epoch 2/3  done"
    left.write()

    assert outcome(left.judge(), "losses") is Outcome.NOT_PROVEN
    assert "epoch 2" in left.judge().text()


def test_an_epoch_that_only_the_log_has(left):
    """An epoch that rank 0 printed and metrics.csv lacks is found, whatever was asked for."""
    left.logs = {rank: [line.replace("epochs=3", "epochs=4") for line in lines] for rank, lines in left.logs.items()}
    left.logs[0] = [line.replace("/3  ", "/4  ") for line in left.logs[0]]
    left.logs[0].insert(4, epoch_line(4).replace("/3", "/4"))
    left.metrics.append(epoch_row(4))
    left.write()
    assert left.judge().cause is Cause.VERIFIED, left.judge().text()
    left.logs = {rank: [line.replace(" epochs=4", "") for line in lines] for rank, lines in left.logs.items()}
    left.metrics.pop()
    left.write()

    report = left.judge()
    assert report.cause in (Cause.EPOCH_MISSING, Cause.LOSS_DIFFERS)


def test_the_log_counts_to_another_number_of_epochs(left):
    """Start lines that ask for 3 epochs and lines that count to 5 do not go together."""
    left.logs[0] = [line.replace("/3  ", "/5  ") for line in left.logs[0]]
    left.write()

    expect(left.judge(), Cause.EPOCH_ORDER, "3 epochs were asked for, and .*rank_0.log counts to 5")


# Files cut in the middle


@pytest.mark.parametrize("lost", [1, 3])
def test_a_table_that_is_cut(left, lost):
    """A table whose last line has no end may have been cut in its last number, and is not proven."""
    path = left.results / "metrics.csv"
    path.write_bytes(path.read_bytes()[:-lost])
    report = left.judge()

    assert report.cause is Cause.NOT_PROVEN, report.text()
    assert "metrics.csv ends in the middle of a line" in report.text()


def test_a_checkpoint_that_is_cut(left):
    """A checkpoint that begins as a zip archive and does not end as one is found."""
    import zipfile

    path = left.results / "checkpoint_latest.pth"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data", b"0" * 200_000)
    assert left.judge().cause is Cause.VERIFIED
    path.write_bytes(path.read_bytes()[:-40])

    expect(left.judge(), Cause.FILE_MALFORMED, "checkpoint_latest.pth is cut off")


def test_no_accounting_expects_one_world(job):
    """Where sacct cannot be asked, one world is one world."""
    log(job, *TWO)
    missing = Accounting(problem="this machine has no sacct")
    report = verify.judge(verify.collect("17", folder=job.folder, ask=lambda job: missing))

    assert report.cause is Cause.NOT_PROVEN
    assert outcome(report, "parameters") is Outcome.PASSED
