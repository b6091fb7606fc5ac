"""The wait for accounting: what Slurm 22.05.8 printed at the end of jobs, and when that is believed."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence

import pytest

from srunbook.slurm import Accounting, ask_accounting, queue_states

HEADER = "JobID|JobIDRaw|State|ExitCode|NNodes|NTasks|Elapsed|NodeList|Partition|End"
BATCH = "12.batch|12.batch|FAILED|3:0|1|1|00:00:00|node1||2026-11-23T03:31:28"
EARLY = f"12|12|FAILED|3:0|1||00:00:00|node1||2026-11-23T03:31:28\n{BATCH}"
"""What sacct says of a job whose end it has heard of, and not its start."""
FINAL = EARLY.replace("node1||", "node1|batch|", 1)
RUNNING = "12|12|RUNNING|0:0|1||00:00:00|node1|batch|Unknown"
HALF = f"{FINAL}\n12.0|12.0|RUNNING|0:0|1|1|00:00:00|node1||Unknown"
NODES = FINAL.replace("3:0|1||", "3:0|2||")

ARRAY = "\n".join(
    [
        "1_1|2|COMPLETED|0:0|1||00:00:00|node1|batch|2026-11-23T03:30:49",
        "1_1.batch|2.batch|COMPLETED|0:0|1|1|00:00:00|node1||2026-11-23T03:30:49",
        "1_3|1|FAILED|1:0|1||00:00:00|node1||2026-11-23T03:30:49",
        "1_3.batch|1.batch|FAILED|1:0|1|1|00:00:00|node1||2026-11-23T03:30:49",
    ]
)
ARRAY_FINAL = ARRAY.replace("node1||2026-11-23T03:30:49\n1_3.batch", "node1|batch|2026-11-23T03:30:49\n1_3.batch")


class Slurm:
    """Answers one question after the other; the last answer stays."""

    def __init__(self, answers: Sequence[str], queue: str = "12 FAILED", *, known: bool = True) -> None:
        self.answers, self.queue, self.known, self.asked = list(answers), queue, known, 0

    def __call__(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        """Answer in place of Slurm."""
        if command[0] == "squeue":
            wrong = "" if self.known else "slurm_load_jobs error: Invalid job id specified"
            return subprocess.CompletedProcess(
                command, int(bool(wrong)), f"{self.queue}\n" if self.known else "", wrong
            )
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return subprocess.CompletedProcess(command, 0, "\n".join(filter(None, [HEADER, answer, ""])) + "\n", "")


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Accounting]:
    """Ask without waiting."""
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("time.sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    return ask_accounting


@pytest.mark.parametrize(
    ("early", "final"),
    [(EARLY, FINAL), (RUNNING, FINAL), (HALF, FINAL), (NODES, FINAL), ("", FINAL), (ARRAY, ARRAY_FINAL)],
    ids=["no start", "no end", "no end of a step", "too few nodes", "no rows", "one element has no start"],
)
def test_early_rows_are_not_believed(ask, early, final):
    """Rows of a job that has ended are believed once sacct has heard of the start and the end of all parts."""
    slurm = Slurm([early, early, final])
    found = ask("12", slurm)

    assert slurm.asked == 3
    assert found.final
    assert found.text.rstrip("\n") == f"{HEADER}\n{final}"


def test_a_job_that_may_be_called_allocation(ask):
    """What its user calls a job does not matter."""
    slurm = Slurm([FINAL])

    assert ask("12", slurm).final
    assert slurm.asked == 1


@pytest.mark.parametrize(("queue", "state"), [("12 RUNNING", "RUNNING"), ("12 COMPLETING\n13 PENDING", "PENDING")])
def test_a_job_in_the_queue_is_not_waited_for(ask, queue, state):
    """A job that waits or runs is told at once, also one that sacct does not know yet."""
    slurm = Slurm([RUNNING], queue)
    assert (ask("12", slurm).final, slurm.asked) == (False, 1)
    slurm = Slurm([""], queue)

    assert (ask("12", slurm).queued, slurm.asked) == (state, 1)


def test_a_job_that_nobody_knows(ask):
    """A number without rows that squeue does not know, either, is of no job."""
    slurm = Slurm([""], known=False)

    assert ask("12", slurm) == Accounting(text=f"{HEADER}\n")
    assert slurm.asked == 1


@pytest.mark.parametrize("known", [True, False])
def test_the_wait_has_an_end(ask, known):
    """Rows that never become final are returned after the time that was given."""
    slurm = Slurm([EARLY], known=known)

    assert ask("12", slurm, patience=3.0).rows
    assert slurm.asked == 12


def test_states_of_all_parts():
    """Squeue tells each element and component, and tells an unknown job from no answer."""
    assert queue_states("1", Slurm([], "1_1 COMPLETED\n1_[2-3] PENDING")) == {"1_1": "COMPLETED", "1_[2-3]": "PENDING"}
    assert queue_states("4", Slurm([], "4+0 FAILED\n4+1 FAILED")) == {"4+0": "FAILED", "4+1": "FAILED"}
    assert queue_states("9", Slurm([], known=False)) == {}
    assert queue_states("9", lambda command: subprocess.CompletedProcess(command, 1, "", "Unable to contact")) is None
