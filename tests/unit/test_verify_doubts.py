"""What `srunbook verify` cannot tell from something worse is not proven, and what contradicts itself has failed."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest
from support.left_behind import COMPLETED, Left, end, epoch_line, expect, lay_out, start

from srunbook.ranklog import RankLineError, parse_rank_lines
from srunbook.slurm import SlurmParseError, _running, parse_sacct
from srunbook.verify import Cause, Outcome, TargetError, ask_sacct, collect, judge, parse_log

TWO = [start(0), start(1), end(0), end(1)]


@pytest.fixture
def left(tmp_path: Path) -> Left:
    """Lay out what a job of two ranks and three epochs leaves behind."""
    return lay_out(tmp_path)


@pytest.fixture
def job(tmp_path: Path) -> Left:
    """Make a folder for a job without a folder of results, whose ranks print into one log."""
    (tmp_path / "slurm-17.out").write_text("\n".join([*TWO, ""]))
    return Left(tmp_path)


def log(left, *lines):
    """Write the log of the job."""
    (left.folder / "slurm-17.out").write_text("\n".join([*lines, ""]))


def doubt(report, name, sentence):
    """Expect that all checks have passed but one, which proves nothing."""
    open_ended = [check for check in report.checks if check.outcome is not Outcome.PASSED]

    assert [(check.name, check.outcome) for check in open_ended] == [(name, Outcome.NOT_PROVEN)], report.text()
    assert sentence in open_ended[0].evidence


# Accounting


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("17|COMPLETED||2", "'' is no exit code"),
        ("17|COMPLETED by 1001|0:0|2", "'COMPLETED by 1001' is no state"),
        ("17|COMPLETED FAILED|0:0|2", "'COMPLETED FAILED' is no state"),
    ],
)
def test_a_row_that_only_begins_well(row, problem):
    """A completed row has an exit code, and its state is one word."""
    with pytest.raises(SlurmParseError, match=problem):
        parse_sacct(f"JobID|State|ExitCode|NNodes\n{row}\n")


@pytest.mark.parametrize("numbers", [(1,), (0, 2)])
def test_a_step_is_missing(job, numbers):
    """Slurm numbers steps from 0 without a gap."""
    row = COMPLETED.splitlines()
    job.accounting = "".join(f"{line}\n" for line in [*row[:2], *(row[2].replace(".0", f".{n}") for n in numbers)])

    doubt(job.judge(), "steps", f"no row of step 17.{numbers[0] ^ 1}")


def test_no_step_of_srun_on_two_nodes(job):
    """Without a step, that Slurm started ranks on a second node is only what they say."""
    job.accounting = "\n".join([*COMPLETED.splitlines()[:2], ""])

    doubt(job.judge(), "world", "the ranks ran on 2 nodes, and sacct has no step of srun")


def test_mpirun_starts_the_ranks(job):
    """A daemon on each node but the first is what mpirun asks srun for; the ranks are tasks of neither."""
    job.accounting = "17|COMPLETED|0:0|2||9|node[1-2]\n17.0|COMPLETED|0:0|1|1|9|node2\n"

    doubt(job.judge(), "world", "17.0 left out the first node, where mpirun may have started all 2 ranks")


def test_a_step_on_a_node_of_another_job(job):
    """A step runs on nodes of its job, also where the ranks call them something else."""
    job.accounting = COMPLETED.replace("01:28|node[1-2]", "01:28|other[1-2]")

    expect(job.judge(), Cause.HOSTS, r"17\.0 ran on other\[1-2\]; the job was given node\[1-2\]")


def test_a_step_that_counts_other_nodes_than_it_names(job):
    """Which nodes a step had is unknown where its row contradicts itself."""
    job.accounting = COMPLETED.replace("17.0|COMPLETED|0:0|2|", "17.0|COMPLETED|0:0|3|")

    doubt(job.judge(), "hosts", "sacct counts 3 nodes and names node[1-2]")


def test_two_tasks_say_one_place(job):
    """Two tasks of a step cannot both be the first of their node."""
    job.accounting = COMPLETED.replace("|2|2|", "|1|2|").replace("|2||", "|1||").replace("node[1-2]", "node1")
    log(job, start(0), start(1, host="node1"), end(0), end(1))

    doubt(job.judge(), "world", "ranks 0 and 1 both say local_rank=0 on node1")


@pytest.mark.parametrize(("nodes", "steps", "outcome"), [("1-2", True, "NOT_PROVEN"), ("1-2", False, "FAILED")])
def test_a_component_without_ranks(tmp_path, nodes, steps, outcome):
    """A component that ran a step may have fed data to the ranks; one without any has idled."""
    step = f"56+0.0|56.0|COMPLETED|0:0|1|1|9|node[{nodes[0]}]\n" if steps else ""
    left = Left(tmp_path, header="JobID|JobIDRaw|State|ExitCode|NNodes|NTasks|Elapsed|NodeList")
    left.accounting = f"56+0|56|COMPLETED|0:0|2||9|node[{nodes}]\n56+0.batch|56.batch|COMPLETED|0:0|1|1|9|node1\n{step}"
    left.accounting += "56+1|57|COMPLETED|0:0|1||9|node3\n56+1.1|57.1|COMPLETED|0:0|1|1|9|node3\n"
    (tmp_path / "slurm-56.out").write_text("\n".join([start(0, 1, job=56, host="node3"), end(0, 1), ""]))
    (hosts,) = [check for check in left.judge("56").checks if check.name == "hosts"]

    assert hosts.outcome.name == outcome, hosts
    assert ("56+0 ran a step and no rank" in hosts.evidence) is steps


def test_an_answer_that_cannot_be_read(left, monkeypatch):
    """What sacct said of the job may have been that it failed, so a summary does not take its place."""
    (left.results / "sacct_summary.txt").write_text(f"{left.header}\n{COMPLETED}")
    said = subprocess.CompletedProcess([], 0, f"{left.header}\n17|FAIL", "")
    monkeypatch.setattr(_running, "run_here", lambda command: said)

    doubts = [
        check.name
        for check in judge(collect("17", folder=left.folder, ask=ask_sacct)).checks
        if check.outcome is Outcome.NOT_PROVEN
    ]
    assert doubts == ["job", "steps", "hosts"]


def test_a_summary_of_some_components(tmp_path):
    """A heterogeneous job is all of its components; a summary of one of them says nothing of the others."""
    folder = tmp_path / "results" / "run_56"
    folder.mkdir(parents=True)
    row = "56+1|57|COMPLETED|0:0|1||9|node3"
    (folder / "sacct_summary.txt").write_text(f"JobID|JobIDRaw|State|ExitCode|NNodes|NTasks|Elapsed|NodeList\n{row}\n")
    job, *_ = Left(tmp_path, accounting="").judge("56+1").checks

    assert job.outcome is Outcome.NOT_PROVEN
    assert "lacks components of the job" in job.evidence


# Folders and logs


def test_a_folder_that_is_a_link_to_that_of_another_job(left):
    """A link under the number of a job, to the folder of another one, is refused."""
    left.results.rename(left.results.with_name("ddp_cpu_18"))
    left.results.symlink_to("ddp_cpu_18")

    with pytest.raises(TargetError, match="the folder of another job"):
        left.judge()


def test_the_log_of_an_element_is_not_that_of_a_job(job):
    """slurm-56_17.out is of element 17 of array 56, and not of job 17."""
    (job.folder / "slurm-17.out").rename(job.folder / "slurm-56_17.out")

    assert job.judge().cause is Cause.NOT_PROVEN


def test_a_folder_of_an_element_that_sacct_forgot(left):
    """The summary, or else the number in the start lines, tells element 56_3 from a job 3."""
    folder = left.results.rename(left.results.with_name("ddp_cpu_56_3"))
    rows = COMPLETED.replace("17", "56_3").replace("|COMPLETED", "|17|COMPLETED")
    text = f"JobID|JobIDRaw|State|ExitCode|NNodes|NTasks|Elapsed|NodeList\n{rows}"
    left.accounting = ""
    for written in (True, False):
        (folder / "sacct_summary.txt").write_text(text) if written else (folder / "sacct_summary.txt").unlink()
        report = left.judge("results/ddp_cpu_56_3")

        assert report.job == "56_3"
        assert not any(check.cause is Cause.RANK_LINE_DAMAGED for check in report.checks), report.text()


def test_the_log_of_an_element_that_sacct_forgot(left):
    """The summary says by which other number the log of an element is to be found."""
    folder = left.results.rename(left.results.with_name("ddp_cpu_56_3"))
    rows = COMPLETED.replace("17", "56_3").replace("|COMPLETED", "|17|COMPLETED")
    text = f"JobID|JobIDRaw|State|ExitCode|NNodes|NTasks|Elapsed|NodeList\n{rows}"
    (folder / "sacct_summary.txt").write_text(text)
    (left.folder / "slurm-17.out").write_text("\n".join([*left.logs[0], *left.logs[1], ""]))
    for rank in left.logs:
        (folder / f"rank_{rank}.log").unlink()
    left.accounting = ""

    assert left.judge("results/ddp_cpu_56_3").cause is Cause.VERIFIED


def test_a_log_of_a_rank_that_the_world_does_not_have(left):
    """A log of a third rank shows that more processes were started than took part."""
    left.logs[2] = [start(1), end(1)]
    left.write()

    assert left.judge().cause in (Cause.RANK_TWICE, Cause.RANK_MISSING)


def test_two_processes_of_one_rank_at_once(job):
    """Attempts follow each other, so a rank that ended twice after beginning twice was two processes."""
    job.accounting = f"17|REQUEUED|0:0|2||9|node[1-2]\n17.0|CANCELLED|0:15|2|2|9|node[1-2]\n{COMPLETED}"
    log(job, start(0), start(1), start(1, pid=99), start(0), end(1), end(1), end(0))

    expect(job.judge(), Cause.RANK_TWICE, "two processes of rank 1 ran at once")


# Lines


@pytest.mark.parametrize("move", ["\x1b[12D", "\b" * 12, "\x1b[1K", "\x1b[2K", "\0", "\x7f"])
def test_a_line_that_writes_over_itself(move):
    """A value behind which the cursor moves is not what the terminal shows."""
    with pytest.raises(RankLineError, match="a control character follows"):
        parse_rank_lines([f"rank 0/2 end params={'ab' * 6}{move}{'cd' * 6}"])

    assert parse_rank_lines([f"\x1b[1A\x1b[2K\r{start(0)}\x1b[0m\x1b[K", f"{start(0)}\r"])


def test_parameters_of_no_bytes(job):
    """The SHA-256 of nothing is the same on all ranks, and says nothing of them."""
    nothing = hashlib.sha256(b"").hexdigest()
    log(job, start(0), start(1), end(0, params=nothing), end(1, params=nothing[:12]))

    doubt(job.judge(), "parameters", "e3b0c44298fc... is the SHA-256 of no bytes")


def test_a_loss_in_the_log_alone_is_not_finite(job):
    """Without a folder of results, the lines of epochs are all that says so."""
    log(job, start(0), start(1), "epoch 1/1  train_loss nan", end(0), end(1))

    expect(job.judge(), Cause.NOT_FINITE, "rank 0 printed train_loss nan for epoch 1")


@pytest.mark.parametrize(
    ("cell", "evidence"),
    [
        ("0.2234564", "3 numbers of 3 epochs agree"),
        ("0.223457", "val_loss is 0.223457 in metrics.csv"),
        ("", "val_loss is empty in metrics.csv"),
    ],
)
def test_a_coloured_number_is_compared(left, cell, evidence):
    """A colour behind a number does not hide it; rounding takes the last digit printed, also before an exponent."""
    left.metrics = [f"{n},0.5,{cell},3.2,4.5,2.5,400.0,0.1,2.4,,81.5" for n in (1, 2, 3)]
    left.logs[0][1:4] = [f"epoch {n}/3  val_loss 2.23456e-01\x1b[0m" for n in (1, 2, 3)]
    left.write()
    (losses,) = [check for check in left.judge(form=None).checks if check.name == "losses"]

    assert evidence in losses.evidence
    assert losses.outcome is (Outcome.PASSED if "agree" in evidence else Outcome.FAILED)


def test_an_epoch_said_twice():
    """The same numbers again are no contradiction, nor are others after another start."""
    first, other = epoch_line(1), epoch_line(1).replace("0.1", "0.7")

    assert parse_log("x", None, [start(0), first, first, start(0), other]).contradicted is None
    assert parse_log("x", None, [start(0), first, epoch_line(2), other]).contradicted == 1


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ([1, 2], None),
        ([2, 3], "no line for epoch 1"),
        ([1, 2, "epoch 3/3  train_loss 0.323456"], "numbers of other columns in its line for epoch 3"),
    ],
)
def test_lines_of_some_epochs(left, lines, sentence):
    """A resumed run leaves its first lines in an earlier log; any other gap has failed."""
    left.logs[0][1:4] = [epoch_line(line) if isinstance(line, int) else line for line in lines]
    left.write()
    if sentence:
        doubt(left.judge(), "losses", sentence)
    else:
        expect(left.judge(), Cause.LOSS_DIFFERS, "no line for epoch 3")
