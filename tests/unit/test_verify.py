"""`srunbook verify` finds each way in which a job's artefacts can be wrong, and says so with a status of its own."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.left_behind import (
    COLUMNS,
    COMPLETED,
    HEADER,
    Left,
    end,
    epoch_line,
    epoch_row,
    expect,
    lay_out,
    start,
)

from srunbook import verify
from srunbook.signals import EXIT_DO_NOT_REQUEUE, EXIT_STOPPED
from srunbook.slurm import Accounting, parse_sacct
from srunbook.verify import Cause, Outcome


@pytest.fixture
def left(tmp_path: Path) -> Left:
    """Lay out what a job of two ranks and three epochs leaves behind."""
    return lay_out(tmp_path)


def test_a_good_job_is_verified(left):
    """Every check passes for a job that did what it should."""
    report = left.judge()

    assert report.cause is Cause.VERIFIED, report.text()
    assert [check.name for check in report.checks] == [
        *("job", "steps", "rank lines", "world", "hosts", "backend", "ends", "parameters"),
        *("files", "metrics.csv", "epochs", "numbers", "losses"),
    ]
    assert {check.outcome for check in report.checks} == {Outcome.PASSED}
    assert report.final["val_mae"] == 3.2149


def test_a_folder_is_as_good_as_its_job(left):
    """The folder of results, with or without a slash, leads to the same report as the job id."""
    by_job, *by_folder = (left.judge(target) for target in ("17", "results/ddp_cpu_17", f"{left.results}/"))

    assert [report.checks for report in by_folder[:1]] == [by_job.checks]
    assert by_folder[1].cause is Cause.VERIFIED


# Files


@pytest.mark.parametrize("name", ["metrics.csv", "timings.csv", "checkpoint_latest.pth"])
def test_a_missing_file(left, name):
    """A required file that is missing is named."""
    (left.results / name).unlink()

    expect(left.judge(), Cause.FILE_MISSING, f"{name} missing in .*ddp_cpu_17")


@pytest.mark.parametrize("name", ["metrics.csv", "timings.csv", "checkpoint_latest.pth"])
def test_an_empty_file(left, name):
    """A required file that is empty is named."""
    (left.results / name).write_bytes(b"")

    expect(left.judge(), Cause.FILE_EMPTY, f"{name} empty in .*ddp_cpu_17")


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("val_mae,", "", "column 'val_mae' is missing; the first line reads epoch,train_loss"),
        ("val_mae", "mae", "column 'val_mae' is missing"),
        ("cpu_util_avg", "cpu_util_avg,more", "column 'more' is unknown"),
        ("epoch,train_loss", "train_loss,epoch", "other order"),
        (",81.5\n", "\n", "line 2 has 10 cells, and there are 11 columns"),
        ("3.2149", "three", "line 2: val_mae is 'three', which is not a number"),
        ("3.2149", "", "line 2: val_mae is '', which is not a number"),
        ("2,0.2", "2.0,0.2", "line 3: epoch is '2.0'"),
        ("81.5", "8" * 200_000, "a line is longer than 65536 bytes"),
    ],
)
def test_a_malformed_file(left, old, new, sentence):
    """Other columns, or a cell that is no number, are named with their line."""
    path = left.results / "metrics.csv"
    path.write_text(path.read_text().replace(old, new))

    expect(left.judge(), Cause.FILE_MALFORMED, re.escape(sentence))


# Epochs and numbers


@pytest.mark.parametrize(
    ("epochs", "sentence"),
    [
        ((1, 3), "epoch 2 is missing; 3 were asked for"),
        ((1, 2), "epoch 3 is missing; 3 were asked for"),
        ((), "epoch 1, 2, 3 is missing; 3 were asked for"),
    ],
    ids=["between", "at-the-end", "all"],
)
def test_an_epoch_is_missing(left, epochs, sentence):
    """An epoch that is not in metrics.csv is named, also where it is the last one."""
    left.metrics = [epoch_row(number) for number in epochs]
    left.write()

    expect(left.judge(), Cause.EPOCH_MISSING, sentence)


def test_an_epoch_is_there_twice(left):
    """An epoch that is in metrics.csv twice is named."""
    left.metrics.insert(1, epoch_row(2))
    left.write()

    expect(left.judge(), Cause.EPOCH_TWICE, "epoch 2 is there more than once")


@pytest.mark.parametrize("epochs", [(2, 1, 3), (1, 2, 3, 4), (0, 1, 2, 3)], ids=["order", "too-many", "zero"])
def test_epochs_out_of_order(left, epochs):
    """Epochs that do not ascend, or are more than were asked for, are shown beside what is expected."""
    left.metrics = [epoch_row(number) for number in epochs]
    left.write()

    expect(left.judge(), Cause.EPOCH_ORDER, f"{', '.join(map(str, epochs))}; expected 1 to 3, in order")


def test_unknown_number_of_epochs(left):
    """Where nobody says how many epochs were asked for, that all are there is not proven."""
    left.logs = {rank: [line.replace(" epochs=3", "") for line in lines] for rank, lines in left.logs.items()}
    left.logs[0] = [line for line in left.logs[0] if "epoch " not in line]
    left.write()
    report = left.judge()

    assert report.cause is Cause.NOT_PROVEN
    assert {check.name for check in report.checks if check.outcome is Outcome.NOT_PROVEN} == {"epochs", "losses"}


@pytest.mark.parametrize("value", ["nan", "inf", "-Infinity", "NaN"])
def test_a_number_is_not_finite(left, value):
    """A number that is not finite is named with its epoch and column."""
    left.metrics[1] = left.metrics[1].replace("0.250000", value)
    left.write()

    expect(left.judge(), Cause.NOT_FINITE, "epoch 2: val_loss is -?(nan|inf)")


def test_the_report_of_a_number_that_is_not_finite(left):
    """The JSON of a report holds no NaN, which JSON does not have."""
    left.metrics[2] = left.metrics[2].replace("0.350000", "nan")
    left.write()
    report = json.loads(left.judge().json(), parse_constant=pytest.fail)

    assert report["cause"] == "NOT_FINITE"
    assert "val_loss" not in report["final"]
    assert report["final"]["train_loss"] == 0.323456


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("0.223456", "0.223457", "epoch 2: train_loss is 0.223457 in metrics.csv and 0.223456 in .*rank_0.log"),
        ("3.2149", "3.2251", "epoch 2: val_mae is 3.2251 in metrics.csv and 3.21 in .*rank_0.log"),
    ],
)
def test_metrics_differ_from_the_log(left, old, new, sentence):
    """A number in metrics.csv that differs from rank 0's log, by a last digit that it printed, is found."""
    left.metrics[1] = left.metrics[1].replace(old, new)
    left.write()

    expect(left.judge(), Cause.LOSS_DIFFERS, sentence)


def test_the_log_lacks_an_epoch(left):
    """An epoch in metrics.csv that rank 0 never printed is found."""
    left.logs[0].remove(epoch_line(3))
    left.write()

    expect(left.judge(), Cause.LOSS_DIFFERS, "rank_0.log has no line for epoch 3, which metrics.csv has")


# Other folders of results


def judge_header(left: Left, *lines: str, **options: Any) -> verify.Report:
    """Judge a folder with a metrics.csv of these lines, by its own header."""
    (left.results / "metrics.csv").write_text("\n".join([*lines, ""]))
    return left.judge(form=verify.ResultsForm(**options))


def test_columns_of_the_header(left):
    """Without a form the header says which columns there are; one without any value is left out."""
    rows = [f"{number},0.{number}23456,{number * 8}," for number in (1, 2, 3)]
    (left.results / "timings.csv").unlink()
    report = judge_header(left, "epoch,train_loss,tokens,gpu", *rows)
    checks = {check.name: check.evidence for check in report.checks}

    assert report.cause is Cause.VERIFIED, report.text()
    assert checks["metrics.csv"] == "3 lines of 4 columns"
    assert checks["numbers"] == "finite; at the end train_loss 0.323456, tokens 24"
    assert report.final == {"train_loss": 0.323456, "tokens": 24}


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (("step,loss", "1,0.5"), "the first column is 'step'; it should be 'epoch'"),
        (("epoch,loss,loss", "1,0.5,0.5"), "column 'loss' is there twice"),
        (("epoch", "1"), "'epoch' is the only column"),
        (("epoch,loss", "1,0.5", "2,"), "line 3: loss is '', which is not a number"),
        (("epoch,loss", "1,low"), "line 2: loss is 'low', which is not a number"),
        (("epoch,loss", ",0.5"), "line 2: epoch is '', which is not a number"),
    ],
)
def test_a_header_that_is_wrong(left, lines, sentence):
    """A header without epochs, a column twice, a cell missing among numbers: each is named."""
    expect(judge_header(left, *lines), Cause.FILE_MALFORMED, re.escape(sentence))


def test_a_form_of_the_caller(left):
    """A caller may say which cells may be empty, and which files are required."""
    lines = ("epoch,train_loss,gpu", "1,0.123456,", "2,0.223456,9", "3,0.323456,")
    report = judge_header(left, *lines, may_be_empty=("gpu",), required=("timings.csv", "model.pt"))

    expect(report, Cause.FILE_MISSING, "^model.pt missing in")
    assert [check.name for check in report.checks if check.outcome is not Outcome.PASSED] == ["files"]


def test_a_folder_without_metrics(left):
    """A folder without metrics.csv proves something only if somebody says what it has to hold."""
    (left.results / "metrics.csv").unlink()
    nothing = left.judge(form=verify.ResultsForm())
    named = left.judge(form=verify.ResultsForm(required=("timings.csv",)))

    assert nothing.cause is Cause.NOT_PROVEN
    assert nothing.checks[-1].evidence.endswith("has no metrics.csv, and nothing says which files it should hold")
    assert named.cause is Cause.VERIFIED
    assert len(nothing.checks) == len(named.checks) == 9


def test_a_form_without_epochs():
    """Columns without the epoch are refused."""
    with pytest.raises(ValueError, match="one of them has to be 'epoch'"):
        verify.ResultsForm(columns=("step", "loss"))


# Ranks


def test_a_world_of_one_twice(left):
    """Two ranks that are each alone in a world of 1 are no world of 2, though both ended well."""
    left.logs = {0: [start(0, 1), end(0, 1)], 1: [start(0, 1, host="node2", pid=71), end(0, 1)]}
    left.write()

    expect(left.judge(), Cause.WORLD_SIZE, "world size 1, 2 times, instead of 2: rank 0 is pid 70 on node1, rank 0 is")


def test_a_world_of_one_twice_in_one_log(left):
    """The same is found where both write into the log of the job, and where accounting is silent."""
    lines = [start(0, 1), start(0, 1, host="node2"), end(0, 1), end(0, 1)]
    for accounting in (COMPLETED, COMPLETED.replace("|2|2|", "|2||")):
        left.accounting = accounting
        for path in left.results.glob("rank_*.log"):
            path.unlink()
        left.results.with_name("ddp_cpu_17.out").write_text("".join(f"0: {line}\n" for line in lines))

        expect(left.judge(), Cause.WORLD_SIZE, "world size 1, 2 times, instead of 2")


def test_fewer_ranks_than_tasks(left):
    """A world that is smaller than the step that Slurm started is found."""
    left.accounting = COMPLETED.replace("|2|2|", "|2|4|")

    expect(left.judge(), Cause.WORLD_SIZE, "world size 2 instead of 4")


def test_a_step_before_the_ranks(left):
    """A smaller step, such as one that copies data, makes no world wrong."""
    left.accounting = COMPLETED + "17.1|COMPLETED|0:0|1|1|00:00:01|node1\n17.2|COMPLETED|0:0|2|2|0|node[1-2]\n"

    assert left.judge().cause is Cause.VERIFIED


def test_a_boundless_world(left):
    """A world size that no machine has is answered at once, with the first ranks that are missing."""
    left.logs = {0: [start(0, 10**15), end(0, 10**15)]}
    (left.results / "rank_1.log").unlink()
    left.write()

    expect(left.judge(), Cause.RANK_MISSING, "rank_1.log is missing; the other 1 of 1000000000000000 ranks are there")


def test_ranks_disagree_about_the_world(left):
    """Ranks that name different world sizes are found."""
    left.logs[1][0] = start(1, 3)
    left.write()

    expect(left.judge(), Cause.WORLD_SIZE, "the ranks disagree about the world size: 2, 3")


def test_a_rank_twice(left):
    """Two processes that are the same rank are found."""
    left.logs[1] = [start(0, host="node2"), end(0)]
    left.write()

    expect(left.judge(), Cause.RANK_TWICE, "rank 0 is there 2 times: rank 0 is pid 70 on node1, rank 0 is pid 70 on")


def test_two_ranks_of_one_process(left):
    """Two ranks with one host and one process id are found."""
    left.logs[1][0] = start(1, host="node1", pid=70)
    left.write()

    expect(left.judge(), Cause.RANK_TWICE, "ranks 0 and 1 are one process: pid 70 on node1")


def test_logs_are_swapped(left):
    """A log that another rank wrote than its name says is found."""
    left.logs = {0: left.logs[1], 1: left.logs[0]}
    left.write()

    expect(left.judge(), Cause.RANK_TWICE, "rank_0.log was written by rank 1")


def test_a_rank_without_log(left):
    """A rank whose log is missing is named."""
    (left.results / "rank_1.log").unlink()

    expect(left.judge(), Cause.RANK_MISSING, "rank_1.log is missing; the other 1 of 2 ranks are there")


def test_a_rank_without_start_line(left):
    """A rank whose log has no start line is named."""
    (left.results / "rank_1.log").write_text("nothing of interest\n")

    expect(left.judge(), Cause.RANK_MISSING, "rank_1.log has no start line")


def test_no_logs(left):
    """A folder of results without any log says where logs were looked for."""
    for path in left.results.glob("rank_*.log"):
        path.unlink()

    expect(left.judge(), Cause.RANK_MISSING, "there is no .*rank_0.log, no .*ddp_cpu_17.out, no .*slurm-17.out")


def test_both_ranks_on_one_host(left):
    """Two ranks on one node of a job that was given two are found."""
    left.logs[1][0] = start(1, host="node1")
    left.write()

    expect(left.judge(), Cause.HOSTS, r"both ranks ran on node1; the job was given node\[1-2\]")


def test_a_rank_on_a_foreign_host(left):
    """A rank on a node that the job was not given is found."""
    left.logs[1][0] = start(1, host="node3")
    left.write()

    expect(left.judge(), Cause.HOSTS, r"2 ranks ran on node\[1,3\]; the job was given node\[1-2\]")


@pytest.mark.parametrize(
    ("names", "cause"),
    [
        (("node1.cluster", "node2.cluster"), Cause.VERIFIED),
        (("ip-10-0-0-1", "ip-10-0-0-2"), Cause.NOT_PROVEN),
        (("ip-10-0-0-1", "ip-10-0-0-1"), Cause.HOSTS),
        (("ip-10-0-0-1", "node2"), Cause.HOSTS),
    ],
)
def test_hosts_of_other_names(left, names, cause):
    """A domain does not matter; hosts that are all named otherwise than the nodes can be counted, and no more."""
    for rank, name in enumerate(names):
        left.logs[rank][0] = start(rank, host=name)
    left.write()

    assert left.judge().cause is cause


def test_another_backend(left):
    """A backend that is not the one asked for is found, and so is a rank that differs from the others."""
    expect(left.judge(backend="nccl"), Cause.BACKEND, "rank 0 used gloo, rank 1 used gloo; expected nccl")
    left.logs[1][0] = start(1, backend="mpi")
    left.write()

    expect(left.judge(), Cause.BACKEND, "rank 1 used mpi; expected gloo, like the others")


def test_parameters_of_one_rank_differ(left):
    """One rank whose parameters differ from the others' is named."""
    left.logs[1][-1] = end(1, params="cd" * 6)
    left.write()

    expect(left.judge(), Cause.PARAMETERS, "rank 1 has cdcdcdcdcdcd; rank 0 has abababababab$")


@pytest.mark.parametrize(
    ("name", "line", "check", "evidence"),
    [
        ("host", start, "hosts", "the start line of rank 1 does not say host="),
        ("backend", start, "backend", "the start line of rank 1 does not say backend="),
        ("steps", end, "ends", "all ranks ended, but the end line of rank 1 does not say steps="),
        ("params", end, "parameters", "the end line of rank 1 does not say params="),
    ],
)
def test_a_field_that_a_rank_does_not_say(left, name, line, check, evidence):
    """What one rank, or every rank, leaves unsaid is not proven, and the line names the field and how to say it."""
    place = 0 if line is start else -1
    left.logs[1][place] = line(1, **{name: None})
    left.write()
    one = left.judge()
    left.logs[0][place] = line(0, **{name: None})
    left.write()
    every = left.judge()

    for report, sentence in ((one, evidence), (every, f"no {line.__name__} line says {name}=")):
        (found,) = [check for check in report.checks if check.outcome is not Outcome.PASSED]
        assert (report.cause, found.name, found.outcome) == (Cause.NOT_PROVEN, check, Outcome.NOT_PROVEN)
        assert found.evidence.endswith(sentence)
        assert f"{name}=" in found.next_step


def test_ranks_that_say_nothing_of_themselves(left):
    """Bare rank lines prove that all ranks of one world started and ended, and nothing about hosts or steps."""
    left.logs = {rank: [f"rank {rank}/2 start", f"rank {rank}/2 end"] for rank in (0, 1)}
    left.write()
    checks = {check.name: check for check in left.judge().checks}

    assert checks["rank lines"].outcome is checks["world"].outcome is Outcome.PASSED
    assert checks["world"].evidence == (
        "world size 2: rank 0, rank 1; no start line says host= and no start line says pid=, so two ranks of one "
        "process would not show"
    )
    for name in ("hosts", "backend", "ends", "parameters", "epochs"):
        assert checks[name].outcome is Outcome.NOT_PROVEN, name


def test_ranks_without_process_ids(left):
    """Ranks that are all there pass without a pid=, and the line says what it does not show."""
    left.logs = {rank: [start(rank, pid=None), *lines[1:]] for rank, lines in left.logs.items()}
    left.write()
    report = left.judge()
    (world,) = [check for check in report.checks if check.name == "world"]

    assert report.cause is Cause.VERIFIED
    assert world.evidence == (
        "world size 2: rank 0 on node1, rank 1 on node2; no start line says pid=, so two ranks of one process would "
        "not show"
    )


def test_a_wrong_rank_beside_a_silent_one(left):
    """What one rank does not say hides nothing that the others say: a difference fails all the same."""
    left.logs = {0: [start(0, 3), end(0, 3)], 1: [start(1, 3, backend="mpi"), end(1, 3, params="cd" * 32)]}
    left.logs[2] = [start(2, 3, backend=None), end(2, 3, params=None)]
    left.write()
    checks = {check.name: check.cause for check in left.judge().checks}

    assert (checks["backend"], checks["parameters"]) == (Cause.BACKEND, Cause.PARAMETERS)


def test_hashes_of_different_lengths(left):
    """Where one rank prints more digits of its hash than another, those that both print are compared."""
    left.logs[1][-1] = end(1, params="ab" * 32)
    left.write()

    assert left.judge().cause is Cause.VERIFIED


def test_an_end_in_another_world(left):
    """A rank whose end line names another world size than its start line is found."""
    left.logs[1][-1] = end(1, 4)
    left.write()

    expect(left.judge(), Cause.WORLD_SIZE, "rank 1 started in a world of 2 and ended in one of 4")


def test_a_rank_that_did_not_end(left):
    """A rank with a start line and no end line is named."""
    left.logs[1].pop()
    left.write()

    expect(left.judge(), Cause.UNFINISHED, "rank 1 started and has no end line")


def test_no_steps(left):
    """Ranks that ended without a step did nothing."""
    left.logs = {rank: [*lines[:-1], end(rank, steps=0)] for rank, lines in left.logs.items()}
    left.write()

    expect(left.judge(), Cause.RAN_NOTHING, "all ranks ended with 0 steps")


def test_logs_without_rank_lines(left):
    """A job that is COMPLETED 0:0 and whose ranks say nothing is not proven: its program may print no rank lines."""
    left.logs = {0: ["hello", *map(epoch_line, (1, 2, 3))], 1: []}
    left.write()
    report = left.judge()

    assert report.cause is Cause.NOT_PROVEN, report.text()
    assert re.search("found no start line in .*rank_0.log, .*rank_1.log", report.text())


def test_a_line_that_cannot_be_read(left):
    """A rank line with an impossible value, as where another line tore it apart, is shown."""
    left.logs[0][0] = start(0, pid="7epoch")
    left.write()

    expect(left.judge(), Cause.RANK_LINE_DAMAGED, "rank_0.log: rank 0/2 start: pid=7epoch: expected a whole number")


def test_lines_of_another_job(left):
    """Logs of another job than the folder is named after are found."""
    for rank in (0, 1):
        left.logs[rank][0] = start(rank, job="16")
    left.write()

    expect(left.judge(), Cause.RANK_LINE_DAMAGED, "rank_0.log is of job 16; expected job 17")


# Attempts


def test_a_restarted_rank_counts_once(left):
    """A launcher that starts a rank again leaves two start lines, and the last one counts."""
    left.logs = {rank: [start(rank, pid=9), *lines] for rank, lines in left.logs.items()}
    left.write()

    assert left.judge().cause is Cause.VERIFIED


def test_a_requeued_job_that_ended_is_verified(left):
    """A job that was requeued and then completed is judged by its last attempt, and the report says so."""
    left.logs = {rank: [start(rank, pid=9), end(rank, steps=1), *lines] for rank, lines in left.logs.items()}
    left.accounting = f"17|REQUEUED|0:0|2||00:00:10|node[1-2]\n17.0|CANCELLED|0:15|2|2|0|\n{COMPLETED}"
    left.write()
    report = left.judge()

    assert report.cause is Cause.VERIFIED, report.text()
    assert report.checks[0].evidence.endswith("; attempt 2, the earlier ended REQUEUED")


# Accounting


def without_results(left: Left) -> Left:
    """Take the folder of results away."""
    for path in sorted(left.results.iterdir()):
        path.unlink()
    left.results.rmdir()
    return left


@pytest.mark.parametrize(
    ("row", "cause", "sentence"),
    [
        ("17|FAILED|3:0|2||00:00:05|node[1-2]", Cause.FAILED, r"FAILED 3:0, 2 nodes \(node\[1-2\]\)"),
        ("17|CANCELLED by 20001|0:0|2||00:00:05|node[1-2]", Cause.CANCELLED, "CANCELLED 0:0"),
        ("17|TIMEOUT|0:0|2||00:01:05|node[1-2]", Cause.TIMEOUT, "TIMEOUT 0:0, .* elapsed 00:01:05"),
        ("17|OUT_OF_MEMORY|0:125|2||00:00:05|node[1-2]", Cause.OUT_OF_MEMORY, "OUT_OF_MEMORY 0:125"),
        ("17|NODE_FAIL|0:0|2||00:00:05|node[1-2]", Cause.NODE_FAIL, "NODE_FAIL 0:0"),
        ("17|PREEMPTED|0:0|2||00:00:05|node[1-2]", Cause.OTHER_STATE, "PREEMPTED 0:0"),
        ("17|COMPLETED|1:0|2||00:00:05|node[1-2]", Cause.FAILED, "COMPLETED 1:0"),
    ],
)
def test_the_state_of_the_job(left, row, cause, sentence):
    """Each state in which a job can end has a status of its own."""
    left.accounting = f"{row}\n17.batch|CANCELLED|0:15|1|1|00:00:05|node1\n17.0|FAILED|1:0|2|2|0|\n"

    expect(left.judge(), cause, f"{sentence}.*says sacct.*; expected COMPLETED 0:0")


def test_the_step_tells_more_than_the_job(left):
    """A FAILED job of which a step ran out of memory is one that ran out of memory."""
    left.accounting = COMPLETED.replace("17|COMPLETED|0:0", "17|FAILED|1:0").replace(
        "17.0|COMPLETED|0:0", "17.0|OUT_OF_MEMORY|0:125"
    )

    expect(left.judge(), Cause.OUT_OF_MEMORY, "FAILED 1:0, .*; 17.0 is OUT_OF_MEMORY 0:125; expected COMPLETED")


@pytest.mark.parametrize(
    ("status", "words"),
    [(EXIT_STOPPED, "submit it again"), (EXIT_DO_NOT_REQUEUE, "fail again in the same way"), (3, "grep -n -m1")],
)
def test_what_to_do_about_an_exit_code(left, status, words):
    """A job that was stopped and saved is to be submitted again; other exit codes have their advice, too."""
    left.accounting = COMPLETED.replace("17|COMPLETED|0:0", f"17|FAILED|{status}:0")

    (failed, *_) = [check for check in left.judge().checks if check.outcome is Outcome.FAILED]
    assert words in failed.next_step


def test_a_failed_step_of_a_completed_job(left):
    """A step that failed is found though the script ended well."""
    left.accounting = COMPLETED.replace("17.0|COMPLETED|0:0", "17.0|FAILED|3:0")

    expect(left.judge(), Cause.FAILED, "17.0 is FAILED 3:0; expected COMPLETED 0:0")


def test_no_step(left):
    """A job without a step of srun, whose ranks say nothing, ran nothing."""
    left.accounting = "".join(COMPLETED.splitlines(keepends=True)[:2])
    left.logs = {0: [], 1: []}
    left.write()

    expect(left.judge(), Cause.RAN_NOTHING, "sacct has 17.batch, and no step of srun")


@pytest.mark.parametrize(
    ("accounting", "queued", "cause", "sentence"),
    [
        ("", "", Cause.UNKNOWN_JOB, "sacct knows no job 17"),
        ("", "PENDING", Cause.PENDING, "PENDING, says squeue"),
        ("", "RUNNING", Cause.RUNNING, "RUNNING, says squeue"),
        ("17|PENDING|0:0|2||00:00:00|None assigned\n", "", Cause.PENDING, "PENDING, 2 nodes, elapsed 00:00:00"),
        ("17|RUNNING|0:0|1||00:00:09|node1\n", "", Cause.RUNNING, r"RUNNING, 1 node \(node1\), elapsed 00:00:09"),
        ("17|REQUEUED|0:0|1||00:00:09|node1\n", "", Cause.REQUEUED, "requeued: REQUEUED, 1 node"),
        (
            "17|NODE_FAIL|0:0|1||00:00:09|node1\n17|RUNNING|0:0|1||00:00:02|node2\n",
            "",
            Cause.REQUEUED,
            "requeued: RUNNING, .*; the attempt before ended NODE_FAIL",
        ),
    ],
)
def test_a_job_that_has_not_ended(left, accounting, queued, cause, sentence):
    """Unknown, waiting, running and requeued are told apart, and nothing else is judged."""
    without_results(left)
    left.accounting, left.queued = accounting, queued
    report = left.judge()

    expect(report, cause, sentence)
    assert (len(report.checks), report.ended) == (1, False)


def test_without_sacct_the_summary_counts(left):
    """Where there is no sacct, sacct_summary.txt is believed, and named; without it the state is not proven."""

    def judge() -> verify.Report:
        missing = Accounting(problem="this machine has no sacct")
        return verify.judge(verify.collect("17", folder=left.folder, ask=lambda job: missing))

    assert judge().cause is Cause.NOT_PROVEN
    (left.results / "sacct_summary.txt").write_text(f"{HEADER}\n{COMPLETED}")
    report = judge()

    assert report.cause is Cause.VERIFIED
    assert "says sacct_summary.txt (this machine has no sacct)" in report.checks[0].evidence


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"{HEADER}\n17|RUNNING|0:0|1||00:00:09|node1\n", "was written before the end of the job"),
        (f"{HEADER}\n16|COMPLETED|0:0|1||00:00:09|node1\n", "is of job 16"),
        ("JobID  JobName  State\n", "is not what sacct prints"),
    ],
    ids=["early", "foreign", "other-form"],
)
def test_a_summary_that_proves_nothing(left, text, problem):
    """A summary from inside the job, of another job, or of another form leaves the state unproven."""
    (left.results / "sacct_summary.txt").write_text(text)
    left.accounting = ""
    (check, *_) = left.judge().checks

    assert check.outcome is Outcome.NOT_PROVEN
    assert problem in check.evidence


# Jobs of other guides


@pytest.mark.parametrize("name", ["slurm-17.out", "my_job_17.out", "logs/my_job_17.out"])
def test_a_job_without_results(left, name):
    """A job whose ranks print into the log of the job is verified without a folder of results."""
    without_results(left)
    lines = [start(0), start(1), end(1), end(0)]
    (left.folder / "logs").mkdir(exist_ok=True)
    (left.folder / name).write_text("".join(f"{number % 2}: {line}\n" for number, line in enumerate(lines)))
    report = left.judge()

    assert report.cause is Cause.VERIFIED, report.text()
    assert len(report.checks) == 8


def test_several_ranks_for_each_task(left):
    """A launcher that starts two ranks in each task makes a world that is a multiple of the tasks."""
    without_results(left)
    starts = [start(rank, 4, host=f"node{rank // 2 + 1}") for rank in range(4)]
    (left.folder / "slurm-17.out").write_text("\n".join([*starts, *(end(rank, 4) for rank in range(4))]))

    assert left.judge().cause is Cause.VERIFIED


def test_a_log_elsewhere_is_not_proven(left):
    """Where no log is found, nothing is proven, and the next step says where to look."""
    without_results(left)
    report = left.judge()

    assert report.cause is Cause.NOT_PROVEN
    assert any("sacct -j 17 --format=WorkDir" in check.next_step for check in report.checks)


# Whatever the files hold

GOOD_LOG = "\n".join([start(0, 1), *map(epoch_line, (1, 2, 3)), end(0, 1)])
GOOD_METRICS = "\n".join([COLUMNS, *map(epoch_row, (1, 2, 3))])


def torn(text: str) -> st.SearchStrategy[str]:
    """Replace a piece of a text by something else."""
    cut = st.tuples(st.integers(0, len(text)), st.integers(0, 40), st.text(max_size=20))
    return cut.map(lambda place: text[: place[0]] + place[2] + text[place[0] + place[1] :])


@given(
    torn(GOOD_LOG),
    torn(GOOD_METRICS),
    st.sampled_from([0, None]),
    st.text(st.characters(exclude_characters="\n|"), max_size=5),
)
def test_a_torn_file_is_judged(log, metrics, rank, host):
    """Whatever logs, metrics and accounting hold, the verifier gives a report in each of its forms."""
    rows = tuple(parse_sacct(f"{HEADER}\n{COMPLETED}".replace("node[1-2]", f"node[{host}]")))
    artefacts = verify.Artefacts(
        "17",
        Accounting(rows),
        (verify.parse_log("rank_0.log", rank, log.splitlines()),),
        results=Path("results"),
        sizes={"metrics.csv": len(metrics)},
        metrics=metrics,
    )
    report = verify.judge(artefacts)

    assert all(form() for form in (report.text, report.markdown, report.json))
    assert len(report.checks) == 13
