"""What Slurm says: host lists and layouts, the environment of a step, accounting, the files of a job."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srunbook.slurm import (
    Accounting,
    NotInStepError,
    OutputFiles,
    SlurmParseError,
    StepEnvironment,
    ask_accounting,
    ask_outputs,
    compress_hostlist,
    compress_tasks,
    expand_hostlist,
    expand_tasks,
    parse_gpus,
    parse_sacct,
)

NAMES = st.builds(
    lambda prefix, number, width, suffix: f"{prefix}{number:0{width}}{suffix}",
    st.sampled_from(["n", "rack0n", "a.b-", ""]),
    st.integers(0, 12),
    st.integers(1, 3),
    st.sampled_from(["", "", "-ib"]),
)


@given(st.lists(NAMES, max_size=20) | st.lists(NAMES, max_size=20).map(sorted))
def test_expand_undoes_compress(names):
    """Expanding the compressed form of any names gives these names."""
    assert expand_hostlist(compress_hostlist(names)) == names


def test_lists_and_counts():
    """A host list keeps its order, and neighbours share a bracket; counts are found with and without types."""
    assert expand_hostlist("") == []
    assert expand_hostlist("n[1,3-4,007]") == ["n1", "n3", "n4", "n007"]
    assert compress_hostlist(["n09", "n10", "x", "n3", "n1"]) == "n[09-10],x,n[3,1]"
    assert (expand_tasks("1,2,1"), compress_tasks([1, 2, 1])) == ([1, 2, 1], "1,2,1")
    assert [parse_gpus(text) for text in ("4", "gpu:a100:4", "1g.10gb+me:1,2080ti:2")] == [4, 4, 3]


@pytest.mark.parametrize(
    ("read", "text", "problem", "example"),
    [
        (expand_hostlist, "n[1-2", "a bracket without its other half", "rack[0-1]n[01-04]-ib,login"),
        (expand_hostlist, "a,,b", "an empty name", ""),
        (expand_hostlist, "n[0-999999999]", "names more than 100000 hosts", ""),
        (expand_tasks, "4(x2", "is no count", "it reads like '4(x2),3'"),
        (parse_gpus, "a100", "has no count", ""),
        (parse_sacct, "JobID|State|ExitCode\n17|FAILED|zero\n", "'zero' no exit code", ""),
    ],
)
def test_malformed(read, text, problem, example):
    """What Slurm never writes is refused with the text, the problem and an example."""
    with pytest.raises(SlurmParseError) as caught:
        read(text)

    assert problem in str(caught.value)
    assert repr(text.splitlines()[-1]) in str(caught.value)
    assert example in str(caught.value)


STEP = {
    "SLURM_JOB_ID": "17",
    "SLURM_STEP_ID": "2",
    "SLURM_STEP_NODELIST": "rack0n[01-03]",
    "SLURM_STEP_NUM_TASKS": "11",
    "SLURM_STEP_TASKS_PER_NODE": "4(x2),3",
    "SLURM_NTASKS": "11",
    "SLURM_TASKS_PER_NODE": "4(x2),3",
    "SLURM_PROCID": "9",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "2",
}
BATCH_SHELL = {"SLURM_JOB_ID": "17", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"}
"""What the script of a job has: SLURM_PROCID as well."""


def test_reads_a_step():
    """A task finds its place in a step of unequal nodes."""
    step = StepEnvironment.from_environ(STEP)

    assert (step.rank, step.world_size, step.local_rank, step.local_world_size) == (9, 11, 1, 3)
    assert (step.node_id, step.node, step.coordinator) == (2, "rack0n03", "rack0n01")
    assert (step.job_id, step.step_id) == (17, 2)
    assert step.tasks_per_node == (4, 4, 3)
    assert step.cpus_per_task is None
    assert step.gpus_on_node == 0


@pytest.mark.parametrize(
    ("environ", "error", "said"),
    [
        ({}, NotInStepError, r"not part of a Slurm job.*srun.*srunbook simulate"),
        (BATCH_SHELL, NotInStepError, r"SLURM_STEP_ID, SLURM_STEP_NODELIST not set.*srun python train.py"),
        (STEP | {"SLURM_PROCID": "x"}, SlurmParseError, "SLURM_PROCID 'x'"),
        (STEP | {"SLURM_STEP_NODELIST": "n[1-2]"}, SlurmParseError, "'rank 9 of 11 on node 2 of 2': the nodes have 11"),
    ],
)
def test_no_step(environ, error, said):
    """Outside a job, and in its script, the message says what to do; what cannot be one step is refused."""
    with pytest.raises(error, match=said):
        StepEnvironment.from_environ(environ)


HEADER = "JobID|State|ExitCode|NNodes|NTasks|Elapsed|NodeList"
PRINTED = f"""\
{HEADER}
9|REQUEUED|0:0|1||00:00:01|node1
9.batch|CANCELLED|0:15|1|1|00:00:02|node1
9.0|COMPLETED|0:0|1|1|00:00:01|node1
9|COMPLETED|0:0|2||00:00:00|node[1-2]
9.0|COMPLETED|0:0|2|2|1-00:00:00|node[1-2]
"""
"""What Slurm 22.05.8 printed for a job that was requeued (numbers of nodes changed)."""


def test_rows_are_read():
    """A step's row has its numbers, state, status, signal, nodes and tasks; each row of the job begins an attempt."""
    rows = parse_sacct(PRINTED)
    row, attempts = rows[-1], Accounting(tuple(rows)).attempts

    assert (row.job_id, row.step, row.identity) == ("9", "0", "9.0")
    assert (row.state, row.exit_code, row.signal, row.ended) == ("COMPLETED", 0, 0, True)
    assert (row.nodes, row.tasks, row.elapsed, row.hosts) == (2, 2, "1-00:00:00", ["node1", "node2"])
    assert [[row.state for row in rows] for rows in attempts] == [
        ["REQUEUED", "CANCELLED", "COMPLETED"],
        ["COMPLETED"] * 2,
    ]


def test_elements_and_components():
    """Rows of elements, of those that wait, and of components have their number, and the one that Slurm gave them."""
    header = "JobID|JobIDRaw|State|ExitCode"
    ids = ["56_3|59", "56_3.0|59.0", "56_[4-9%2]|56", "56_[1,3,...]|56", "60+1|61", "60+1.0|61.0", "7.0+1|7.0+1"]
    rows = parse_sacct("\n".join([header, *(f"{text}|COMPLETED|0:0" for text in ids), ""]))

    assert [row.identity for row in rows] == [text.split("|")[0] for text in ids]
    assert [row.raw_id for row in rows] == ["59", "59", "56", "56", "61", "61", "7"]


def test_one_job_of_several():
    """A number means an element, all of an array, or what Slurm gave that number."""
    ids = ["56_1|57", "56_2|56", "60+0|60", "60+1|61", "60+1.0|61.0"]
    text = "".join(f"{line}\n" for line in ["JobID|JobIDRaw|State|ExitCode", *(f"{one}|FAILED|1:0" for one in ids)])
    whole = Accounting(tuple(parse_sacct(text)))

    assert [*whole.of("56").parts] == ["56_1", "56_2"]
    assert [*whole.of("57").parts] == ["56_1"]
    assert [*whole.of("61").parts] == ["60+1"]
    assert whole.of("56_2").text == "JobID|JobIDRaw|State|ExitCode\n56_2|56|FAILED|1:0\n"


ASKED = "JobID|JobIDRaw|State|ExitCode|NNodes|NTasks|Elapsed|NodeList|Partition|End"
BATCH = "12.batch|12.batch|FAILED|3:0|1|1|00:00:00|node1||2026-11-23T03:31:28"
EARLY = f"12|12|FAILED|3:0|1||00:00:00|node1||2026-11-23T03:31:28\n{BATCH}"
"""What sacct says of a job whose end it has heard of, and not its start."""
FINAL = EARLY.replace("node1||", "node1|batch|", 1)
RUNNING = "12|12|RUNNING|0:0|1||00:00:00|node1|batch|Unknown"
HALF = f"{FINAL}\n12.0|12.0|RUNNING|0:0|1|1|00:00:00|node1||Unknown"
ARRAY = "1_1|2|COMPLETED|0:0|1||0|node1|batch|2026-11-23T03:30:49\n1_3|1|FAILED|1:0|1||0|node1|{}|2026-11-23T03:30:49"


class Slurm:
    """Answers one question after the other; the last answer stays."""

    def __init__(self, answers: Sequence[str], queue: str = "12 FAILED") -> None:
        self.answers, self.queue, self.asked = list(answers), queue, 0

    def __call__(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        """Answer in place of Slurm."""
        if command[0] == "squeue":
            wrong = "" if self.queue else "slurm_load_jobs error: Invalid job id specified"
            return subprocess.CompletedProcess(command, int(bool(wrong)), f"{self.queue}\n", wrong)
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return subprocess.CompletedProcess(command, 0, "\n".join(filter(None, [ASKED, answer])) + "\n", "")


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Accounting]:
    """Ask without waiting."""
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("time.sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    return ask_accounting


@pytest.mark.parametrize(
    ("early", "final"),
    [
        *((early, FINAL) for early in (EARLY, RUNNING, HALF)),
        (ARRAY.format(""), ARRAY.format("batch")),
    ],
    ids=["no start", "no end", "no end of a step", "one element has no start"],
)
def test_early_rows_are_not_believed(ask, early, final):
    """Rows of a job that has ended are believed once sacct has heard of the start and the end of all parts."""
    slurm = Slurm([early, early, final])
    found = ask("12", slurm)

    assert slurm.asked == 3
    assert found.final
    assert found.text == f"{ASKED}\n{final}\n"


@pytest.mark.parametrize(("queue", "state"), [("12 RUNNING", "RUNNING"), ("12 COMPLETING\n13 PENDING", "PENDING")])
def test_a_job_in_the_queue_is_not_waited_for(ask, queue, state):
    """A job that waits or runs is told at once, also one that sacct does not know yet."""
    slurm = Slurm([RUNNING], queue)
    assert (ask("12", slurm).final, slurm.asked) == (False, 1)
    slurm = Slurm([""], queue)

    assert (ask("12", slurm).queued, slurm.asked) == (state, 1)


def slurm(shown: str = "", **columns: str) -> Callable[[list[str]], subprocess.CompletedProcess[str]]:
    """Answer as scontrol, or else as sacct with the row of job 17 and that of its only step."""
    row = {"JobID": "17", "JobIDRaw": "17", "JobName": "train", "User": "alice", "NodeList": "node1"}
    row |= {"WorkDir": "/home/alice", "SubmitLine": "sbatch job.sh", **columns}
    step = row | {"JobID": "17.0", "JobIDRaw": "17.0", "WorkDir": "", "SubmitLine": "srun python"}

    def run(command: list[str]) -> subprocess.CompletedProcess[str]:
        if command[0] == "scontrol":
            return subprocess.CompletedProcess(command, int(not shown), shown, "")
        options = dict(word.removeprefix("--").partition("=")[::2] for word in command[1:])
        names = options["format"].split(",")
        if not {*names} <= row.keys():
            return subprocess.CompletedProcess(command, 1, "", "sacct: fatal: Invalid field requested")
        lines = [names, *([one[name] for name in names] for one in (row, step))]
        text = "".join(options["delimiter"].join(line) + "\n" for line in lines)
        return subprocess.CompletedProcess(command, 0, text, "")

    return run


def head(*lines: str) -> Callable[[str], list[str]]:
    """Return a reader of one script."""
    return lambda path: ["#!/bin/bash", *lines] if path == "/home/alice/job.sh" else []


SHOWN_PATTERN = """\
JobId=7 ArrayJobId=5 ArrayTaskId=2 JobName=train
   NodeList=node[2-3]
   BatchHost=node2
   WorkDir=/home/alice
   StdErr=/home/alice/100%%_%s_%n_%t.log
   StdOut=/home/alice/x_%N_%4j_%3A_%2a.log
"""


def test_fields_that_scontrol_leaves():
    """Slurm 22.05 shows fields such as `%N` as they were written; the batch script's are those of its node."""
    found = ask_outputs("5_2", slurm(SHOWN_PATTERN), head())["5_2"]

    assert found == OutputFiles("/home/alice/x_node2_0007_005_02.log", "/home/alice/100%_batch_0_0.log")


@pytest.mark.parametrize(
    ("lines", "columns", "files"),
    [
        ([], {}, ("slurm-17.out", "slurm-17.out")),
        (
            ["#SBATCH --error=%j.err"],
            {"SubmitLine": "sbatch -e over-%j job.sh --error=not-this"},
            ("slurm-17.out", "over-17"),
        ),
        (["#SBATCH -e x"], {"StdOut": "/tmp/%j", "StdErr": "/tmp/%j.err"}, ("/tmp/17", "/tmp/17.err")),
        (["#SBATCH -o x.out"], {"JobName": "x|COMPLETED|0:0\n17|y"}, ("x.out", "x.out")),
    ],
    ids=["default", "command-line-wins", "columns-of-24.05", "name-with-bars"],
)
def test_once_scontrol_has_forgotten(lines, columns, files):
    """Accounting knows the patterns, or the script and the command line do."""
    found = ask_outputs("17", slurm(**columns), head(*lines))["17"]

    assert (found.output, found.errors) == tuple(f if f.startswith("/") else f"/home/alice/{f}" for f in files)
