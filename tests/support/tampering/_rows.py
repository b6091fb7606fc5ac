"""Tamper with the rows of sacct: with those of the job and its attempts, and with the nodes that they name."""

from __future__ import annotations

import random
from collections.abc import Sequence

from support.finished_jobs import SUMMARY, Job, Row, row
from support.tampering._kinds import kind, need

ENDINGS = {
    **{"FAILED": "1:0", "CANCELLED by 1001": "0:15", "TIMEOUT": "0:0", "NODE_FAIL": "0:0", "OUT_OF_MEMORY": "0:125"},
    **{"PREEMPTED": "0:0", "DEADLINE": "0:0", "BOOT_FAIL": "0:0", "REVOKED": "0:0", "RUNNING": "0:0", "PENDING": "0:0"},
    **{"SUSPENDED": "0:0", "REQUEUED": "0:0", "COMPLETING": "0:0", "RESIZING": "0:0", "STOPPED": "0:0", "": "0:0"},
}
"""States that are not COMPLETED, each with an exit code as Slurm gives it; the last is none at all."""


def other_number(job: Job, chance: random.Random) -> str:
    """Choose the number of another job."""
    return chance.choice([str(int(job.number) + 1), f"{job.number}0", job.number[:-1], "1"])


def own(job: Job) -> Row:
    """Return the row of a job that is neither of an array nor heterogeneous."""
    row = job.own
    if row is None or job.shape.startswith(("array", "het")):
        raise LookupError(job.shape)
    return row


def main(job: Job) -> Row:
    """Return the row of the step that started the ranks, where that was the only one."""
    need(job.runs == 1 and job.shape != "mpirun" and own(job) and job.main in job.current)
    return job.main


def fail(rows: Sequence[Row]) -> None:
    """Let a job and its steps fail."""
    for entry in rows:
        entry.update(State="FAILED", ExitCode="1:0")


# The job and its attempts


@kind("rows", "Nothing says how the job itself ended.")
def job_row_removed(job: Job, chance: random.Random) -> None:
    job.rows.remove(own(job))


@kind("rows", "Slurm does not know the job.")
def all_rows_removed(job: Job, chance: random.Random) -> None:
    need(job.source != "sacct" or f"{job.results}/{SUMMARY}" not in job.files)  # else that says how the job ended
    job.rows.clear()


@kind("rows", "A last attempt without any step, not even that of the script, can have started no rank.")
def job_row_again_after_its_steps(job: Job, chance: random.Random) -> None:
    job.rows.append(Row(own(job)))


@kind("rows", "The last attempt is the one that was cut short.")
def attempts_in_other_order(job: Job, chance: random.Random) -> None:
    need(job.attempts > 1)
    rows, current = list(job.rows), job.current
    job.rows[:] = current + rows[: -len(current)]


@kind("rows", "The job was begun anew, and nothing says that it ended.")
def last_attempt_removed(job: Job, chance: random.Random) -> None:
    need(job.attempts > 1)
    del job.rows[-len(job.current) :]


@kind("rows", "The last attempt did not complete.")
def bad_attempt_added(job: Job, chance: random.Random) -> None:
    state = chance.choice(list(ENDINGS))
    job.rows.append(Row(own(job), State=state, ExitCode=ENDINGS[state]))


@kind("rows", "The row that says COMPLETED is about another job.")
def job_row_of_another_job(job: Job, chance: random.Random) -> None:
    own(job).renumber(other_number(job, chance))


@kind("rows", "Everything that accounting says is about another job.")
def all_rows_of_another_job(job: Job, chance: random.Random) -> None:
    number = other_number(job, chance)
    need(own(job))
    for entry in job.rows:
        entry.renumber(number)


@kind("rows", "The job failed; what completed is another one, whose rows follow.")
def another_job_appended(job: Job, chance: random.Random) -> None:
    need(own(job))
    others, number = [Row(entry) for entry in job.current], other_number(job, chance)
    fail(job.current)
    for entry in others:
        entry.renumber(number)
    job.rows.extend(others)


@kind("rows", "The job or one of its steps did not complete.")
def state_changed(job: Job, chance: random.Random) -> None:
    need(job.current)
    state = chance.choice(list(ENDINGS))
    chance.choice(job.current).update(State=state, ExitCode=ENDINGS[state])


@kind("rows", "That is no state of Slurm, so nobody knows how this ended.")
def state_garbled(job: Job, chance: random.Random) -> None:
    need(job.current)
    states = ["COMPLETED FAILED", "COMPLETED by 1001", "COMPLETED+", "UNCOMPLETED", "completed", "COMPLETE", "CD"]
    chance.choice(job.current)["State"] = chance.choice(states)


@kind("rows", "An exit code that is not 0:0 is that of something that failed.")
def exit_code_changed(job: Job, chance: random.Random) -> None:
    need(job.current)
    chance.choice(job.current)["ExitCode"] = chance.choice(["1:0", "0:9", "0:15", "75:0", "255:0", "0:125", "2:6"])


@kind("rows", "Slurm gives every completed row an exit code; without one, 0:0 is only assumed.")
def exit_code_unsaid(job: Job, chance: random.Random) -> None:
    need(job.current)
    chance.choice(job.current)["ExitCode"] = ""


@kind("rows", "That is no exit code.")
def exit_code_garbled(job: Job, chance: random.Random) -> None:
    need(job.current)
    chance.choice(job.current)["ExitCode"] = chance.choice(["0", "0:", ":0", "0:0:0", "-1:0", "0:x", "None", "0.0"])


@kind("rows", "The number names all tasks of the array, and one of them did not complete.", shape="array-whole")
def task_of_the_array_failed(job: Job, chance: random.Random) -> None:
    fail([chance.choice([entry for entry in job.rows if not entry.step][:-1])])


@kind("rows", "A heterogeneous job is all of its components, and one of them did not complete.", shape="het-helper")
def component_failed(job: Job, chance: random.Random) -> None:
    fail([entry for entry in job.rows if "+0" in entry["JobID"]])


# Nodes


@kind("nodes", "A row that counts other nodes than it names contradicts itself.")
def nodes_miscounted(job: Job, chance: random.Random) -> None:
    entry = chance.choice([own(job), main(job)])
    entry["NNodes"] = entry["AllocNodes"] = str(len(entry.nodes) + chance.choice([1, 2, -1]))


@kind("nodes", "The job was given one more node, on which no rank ran.")
def node_idle(job: Job, chance: random.Random) -> None:
    own(job).update(row(job.number, job.number, "", "train", [*job.nodes, "spare99"], None))


@kind("nodes", "Ranks ran on a node that the job was not given.")
def node_not_given(job: Job, chance: random.Random) -> None:
    need(len(job.nodes) > 1)
    nodes = chance.sample(job.nodes, len(job.nodes) - 1)
    own(job).update(row(job.number, job.number, "", "train", nodes, None))


@kind("nodes", "Nobody knows which nodes these are.")
def node_list_garbled(job: Job, chance: random.Random) -> None:
    lists = ["node[1-", "node[2-1]", "None assigned", "", "node[0-99999999]", "a,,b", "node[1-2]]"]
    own(job)["NodeList"] = chance.choice(lists)
