"""Tamper with what sacct says of steps, with its text, and with who is asked."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from support.finished_jobs import SUMMARY, Job, Row, render, row
from support.tampering._kinds import kind, need
from support.tampering._rows import ENDINGS, fail, main, other_number, own

# Steps


@kind("steps", "No step of srun was on all nodes of the ranks: that Slurm started them is only what they say.")
def step_of_the_ranks_removed(job: Job, chance: random.Random) -> None:
    job.rows.remove(main(job))
    need(job.unexplained())


@kind("steps", "Slurm numbers steps without a gap, so how the missing one ended is unknown.")
def step_between_removed(job: Job, chance: random.Random) -> None:
    steps = job.steps[1:-1] if job.attempts > 1 else job.steps[:-1]  # a later attempt may count on
    need(own(job) and steps)
    job.rows.remove(chance.choice(steps))


@kind("steps", "The step that started the ranks is not one of the last attempt.")
def step_in_an_earlier_attempt(job: Job, chance: random.Random) -> None:
    step, place = main(job), job.rows.index(own(job))
    job.rows.remove(step)
    job.rows.insert(place, step)
    need(job.unexplained())


@kind("steps", "sacct answers for the job that was asked for; a step of another one is from another answer.")
def step_of_another_job(job: Job, chance: random.Random) -> None:
    need(own(job) and job.steps)
    chance.choice(job.steps).renumber(other_number(job, chance))


@kind(
    "steps",
    "So many tasks are fewer than the nodes or more than the ranks, or do not divide them: that was another world.",
)
def tasks_changed(job: Job, chance: random.Random) -> None:
    step = main(job)
    step["NTasks"] = str(chance.choice([job.size + 1, job.size * 2, *range(1, job.size)]))
    need(job.unexplained())


@kind("steps", "Nothing says how many tasks Slurm started, so nothing shows that the world is the one that it gave.")
def tasks_unsaid(job: Job, chance: random.Random) -> None:
    main(job)["NTasks"] = chance.choice(["", "0", "x"])
    need(job.unexplained())


@kind("steps", "Some ranks ran on a node on which no step was started.")
def step_on_fewer_nodes(job: Job, chance: random.Random) -> None:
    step = main(job)
    need(len(job.nodes) > 1)
    fewer = job.nodes[: chance.randint(1, len(job.nodes) - 1)]
    step.update(row(job.number, job.number, step.step, "python", fewer, int(step["NTasks"])), JobID=step["JobID"])
    need(job.unexplained())


@kind("steps", "A step runs on nodes of its job, and these are others.")
def step_on_other_nodes(job: Job, chance: random.Random) -> None:
    main(job)["NodeList"] = ",".join(f"other{number}" for number in range(len(job.nodes)))


@kind(
    "steps", "One step is there twice with different numbers of tasks: one of the two is wrong, and nobody knows which."
)
def step_twice_with_other_tasks(job: Job, chance: random.Random) -> None:
    step = main(job)
    twin = Row(step, NTasks=str(job.size * 2 + 1))
    job.rows.insert(job.rows.index(step) + chance.randint(0, 1), twin)


@kind(
    "steps", "The step on all nodes had more tasks than there are ranks, and the one that fits was on one node alone."
)
def smaller_step_for_a_larger_one(job: Job, chance: random.Random) -> None:
    step = main(job)
    need(len(job.nodes) > 1)
    step["NTasks"] = str(job.size * chance.randint(2, 3))
    number, tasks = str(len(job.steps)), chance.choice([1, job.size])
    job.rows.append(row(job.number, job.number, number, "python", job.nodes[:1], tasks))
    need(job.unexplained())


@kind("steps", "A step did not complete.")
def failed_step_added(job: Job, chance: random.Random) -> None:
    need(own(job))
    name = chance.choice([str(len(job.steps)), "extern", "batch", "interactive", "TBD"])
    state = chance.choice([state for state in ENDINGS if state])
    job.rows.append(row(job.number, job.number, name, "x", job.nodes[:1], 1, State=state, ExitCode=ENDINGS[state]))


# The text


def forging_name(job: Job, columns: Sequence[str], step: str) -> str:
    """Return a name for a last step of a failed job: it ends its row, and goes on as an attempt that completed."""
    first = row(job.number, job.number, step, "\0", job.nodes[:1], 1)
    good = [row(job.number, job.number, "", "train", job.nodes, None)]
    good += [row(job.number, job.number, "batch", "batch", job.nodes[:1], 1)]
    good += [row(job.number, job.number, "0", "python", job.nodes, job.size)]
    last = row(job.number, job.number, "1", "\0", job.nodes[:1], 1)
    return f"x{render([first, *good, last], columns).split(chr(0))[1]}x"


@kind("text", "The job failed. Its last step has a name with line breaks, which read as an attempt that completed.")
def rows_in_the_name_of_a_step(job: Job, chance: random.Random) -> None:
    need(own(job) and job.source == "sacct")
    fail(job.current)
    number = str(len(job.steps))
    step: Any = row(job.number, job.number, number, "", job.nodes[:1], 1)
    step["JobName"] = lambda columns: forging_name(job, columns, number)
    job.rows.append(step)


@kind("text", "The job failed. Its name holds bars, with which it reads as one that did not.")
def rows_in_the_name_of_the_job(job: Job, chance: random.Random) -> None:
    entry = own(job)
    fail(job.current)
    end = chance.choice(["", "\n#", "\n", "|"])
    entry["JobName"] = f"x|COMPLETED|0:0|{len(job.nodes)}||00:00:09|{entry['NodeList']}{end}"


@kind("text", "The answer breaks off within a row, and nobody knows what came after it.")
def row_cut(job: Job, chance: random.Random) -> None:
    need(job.rows and len(job.answers) == 1)  # of a job with two numbers, the answer to the other one is whole
    share = chance.random()

    def cut(text: str) -> str:
        within = [place for place in range(text.find("\n") + 2, len(text)) if "\n" not in text[place - 1 : place + 1]]
        return text[: within[int(share * len(within))]] if within else text

    job.edits.append(cut)


@kind("text", "Without its header nobody knows what a column says.")
def header_changed(job: Job, chance: random.Random) -> None:
    old, new = chance.choice([("ExitCode", "Code"), ("State", "Stat"), ("JobID|", "|"), ("JobID", "JobID,")])
    whole = chance.random() < 0.3
    job.edits.append(lambda text: text.partition("\n")[2] if whole else text.replace(old, new, 1))


# Who is asked


@kind("source", "sacct says that the job failed, whatever a file in its folder says.")
def summary_of_a_failed_job(job: Job, chance: random.Random) -> None:
    need(own(job) and job.results and job.source == "sacct")
    columns = ["JobID", "JobName", "State", "ExitCode", "NNodes", "NTasks", "Elapsed", "NodeList"]
    job.files[f"{job.results}/{SUMMARY}"] = render(job.rows, columns).encode()
    fail(job.current)


@kind("source", "sacct ended with an error, so what it printed is not all, and nothing else says how the job ended.")
def sacct_fails(job: Job, chance: random.Random) -> None:
    need(job.source == "sacct")
    job.status = 1


@kind("source", "The summary is all that says how the job ended, and it cannot be read.")
def summary_damaged(job: Job, chance: random.Random) -> None:
    need(job.source != "sacct")
    text = render(job.rows, ["JobID", "JobName", "State", "ExitCode"]).encode()
    content = [b"", b"\0" * len(text), b"\xff\xfe" + text, text.replace(b"|", b" "), text.replace(b"State", b"\xff")]
    job.files[f"{job.results}/{SUMMARY}"] = chance.choice(content)
