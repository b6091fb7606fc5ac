"""`srunbook verify` notices every change in a rank line, in a line of an epoch, and at the end of a file."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest
from support.left_behind import Left, end, epoch_line, epoch_row, expect, lay_out, start

from srunbook import verify
from srunbook.verify import Cause, Outcome


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


def outcome(report: verify.Report, name: str) -> Outcome:
    """Return the outcome of one check."""
    (check,) = [check for check in report.checks if check.name == name]
    return check.outcome


TWO = [start(0), start(1), end(0), end(1)]


CHANGES = {
    "gone": lambda line: [],
    "twice": lambda line: [line, line],
    "rank": lambda line: [re.sub(r"rank (\d)", lambda rank: f"rank {1 - int(rank[1])}", line)],
    "world": lambda line: [line.replace("/2", "/3")],
    "host": lambda line: [re.sub(r"host=\w+", "host=node3", line)],
    "other host": lambda line: [re.sub(r"host=node(\d)", lambda host: f"host=node{3 - int(host[1])}", line)],
    "epochs": lambda line: [line.replace("epochs=3", "epochs=4")],
    "backend": lambda line: [line.replace("backend=gloo", "backend=mpi")],
    "job": lambda line: [line.replace("job=17", "job=16")],
    "steps": lambda line: [line.replace("steps=30", "steps=29")],
    "loss": lambda line: [line.replace("loss=0.0144", "loss=nan")],
    "params": lambda line: [line.replace("params=ab", "params=cd")],
    "torn": lambda line: [line[: len(line) // 2 + 3]],
}
"""Changes of a line. One that leaves it as it is proves nothing, and is passed over."""


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("place", range(4))
def test_one_line_is_changed(job, change, place):
    """Whatever happens to one rank line, the job is not verified."""
    job.accounting = "17|COMPLETED|0:0|2||00:01:30|node[1-2]\n17.0|COMPLETED|0:0|2|2|00:00:09|node[1-2]\n"
    changed = [*TWO[:place], *CHANGES[change](TWO[place]), *TWO[place + 1 :]]
    log(job, *TWO)
    assert job.judge().cause is Cause.VERIFIED
    log(job, *changed)

    assert (job.judge().cause is Cause.VERIFIED) is (changed == TWO)


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


def test_an_end_in_the_log_of_another_rank(left):
    """A rank ends where it started: a line in another rank's log does not end it."""
    left.logs[1].append(left.logs[0].pop())
    left.write()

    assert left.judge().cause is Cause.RANK_TWICE


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
    path = left.results / "checkpoint_latest.pth"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data", b"0" * 200_000)
    assert left.judge().cause is Cause.VERIFIED
    path.write_bytes(path.read_bytes()[:-40])

    expect(left.judge(), Cause.FILE_MALFORMED, "checkpoint_latest.pth is cut off")
