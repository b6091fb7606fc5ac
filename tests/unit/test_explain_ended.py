"""Where no line says why a job failed, what srun says of its tasks tells which one ended first."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from failure_entries import ROOT
from recording_files import read_recording

from srunbook.cli import main
from srunbook.explain import Scanner, Status, diagnose, load_entries
from srunbook.explain._ended import ended_first

CUT = """\
1: Traceback (most recent call last):
srun: error: node4: task 1: Exited with exit code 1
srun: launch/slurm: _step_signal: Terminating StepId=50.0
0: slurmstepd-node3: error: *** STEP 50.0 ON node3 CANCELLED AT 2026-11-23T16:41:07 ***
srun: error: node3: task 0: Terminated
srun: Force Terminated StepId=50.0
"""
"""The log of a job of Slurm 22.05 on two busy nodes: the end of the step cut the traceback off."""

KILLED = "srun: error: node4: task 1: Killed"
CANCELLED = "slurmstepd-node3: error: *** STEP 50.0 ON node3 CANCELLED AT 2026-11-23T16:41:07 ***"
TERMINATED = "srun: error: node3: task 0: Terminated"


def cause_of(*logs: str, completed: bool = False):
    scanner = Scanner(load_entries())
    scanned = [scanner.scan(f"rank_{rank}.log", [text.encode()]) for rank, text in enumerate(logs)]
    return diagnose(scanned, load_entries(), completed=completed).cause


def test_traceback_that_was_cut_off(tmp_path, monkeypatch):
    """Rank, node and exit code of the task that ended first are told, and what to do next."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "slurm-50.out").write_text(CUT)
    result = CliRunner().invoke(main, ["explain", "slurm-50.out"])

    assert result.stdout.splitlines() == [
        "Rank 1 on node4 ended first, with exit code 1; nothing that it printed says why.",
        "",
        "  slurm-50.out, line 2",
        "    srun: error: node4: task 1: Exited with exit code 1",
        f"  Fix:  {load_entries()['slurm-rank-says-nothing'].fix}",
        "  Page: https://srunbook.readthedocs.io/en/latest/troubleshooting/slurm-rank-says-nothing.html",
    ]
    assert result.exit_code == Status.UNKNOWN


def test_traceback_that_was_cut_off_for_programs(tmp_path, monkeypatch):
    """The JSON has the line as the cause that no entry knows, with rank, node and advice."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rank_7.log").write_text(CUT)
    told = json.loads(CliRunner().invoke(main, ["explain", "--json", "rank_7.log"]).stdout)

    assert told["status"] == "unknown"
    assert (told["cause"]["entry"], told["cause"]["rank"], told["cause"]["host"]) == (None, 1, "node4")
    assert told["cause"]["page"].endswith("/slurm-rank-says-nothing.html")
    assert told["to_search"] == []


def test_masked(tmp_path, monkeypatch):
    """With --redact, the sentence does not name the node."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.log").write_text(CUT)
    text = CliRunner().invoke(main, ["explain", "--redact", "a.log"]).stdout

    assert text.startswith("Rank 1 on <host1> ended first, with exit code 1;")
    assert "node4" not in text


@pytest.mark.parametrize(
    "logs",
    [
        (CUT + "1: ValueError: no\n",),
        ("ValueError: no", CUT),
        (f"{CUT}train.py: error: unrecognized arguments: --lr\n",),
    ],
)
def test_a_line_that_says_more_comes_first(logs):
    """What a program itself says of its failure is the cause, wherever it stands."""
    assert "srun" not in cause_of(*logs).text


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        ([KILLED, CANCELLED, TERMINATED], KILLED),
        (
            ["srun: error: node2: tasks 4-7: Exited with exit code 3"],
            "srun: error: node2: tasks 4-7: Exited with exit code 3",
        ),
        ([CANCELLED, KILLED], None),
        (["srun: Job step aborted: Waiting up to 32 seconds for job step to finish.", KILLED], None),
        ([TERMINATED], None),
        (["step 1"], None),
    ],
)
def test_who_ended_first(lines, named):
    """A task that ended by itself is named; one that was stopped with its step, or by somebody, is not."""
    cause = cause_of("\n".join(lines))

    assert (cause and cause.text) == named


def test_several_tasks_are_no_single_rank():
    """Where srun names several tasks at once, the finding has no rank, whatever the log is called."""
    assert cause_of("srun: error: node2: tasks 4-7: Exited with exit code 3").rank is None


def test_completed_job_has_no_task_that_failed():
    """In a job that Slurm calls COMPLETED 0:0, a failed task is no failure of the job."""
    assert cause_of(KILLED, completed=True) is None


def test_recorded_run():
    """Of the recorded run of the entry, in which rank 1 lost its last words, rank 1 is named."""
    path = ROOT / "examples" / "failures" / "slurm-rank-says-nothing" / "broken.recording.json"
    cause = cause_of("\n".join(read_recording(path).output))

    assert ended_first(cause.text).startswith(f"Rank 1 on {cause.text.split(': ')[2]} ended first, with exit code 1;")
