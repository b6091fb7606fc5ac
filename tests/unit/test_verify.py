"""`srunbook verify` judges a job by its accounting, its rank lines and its metrics: passed, failed or not proven."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from srunbook.slurm import Accounting, parse_sacct
from srunbook.verify import Check, Report, TargetError, Verdict, verify

HEADER = "JobID|JobIDRaw|State|ExitCode|NNodes|NTasks|Elapsed|NodeList|End"
PASSED, FAILED, NOT_PROVEN = Verdict.PASSED, Verdict.FAILED, Verdict.NOT_PROVEN


def row(
    identity: str,
    nodes: str = "node[1-2]",
    tasks: int | str = "",
    state: str = "COMPLETED|0:0",
    raw: str = "",
    end: str = "10:01:30",
) -> str:
    """Return a row of sacct."""
    count = 2 if "[1-2]" in nodes or "[3-4]" in nodes else 4 if "[1-4]" in nodes else 1
    return f"{identity}|{raw or identity}|{state}|{count}|{tasks}|00:01:30|{nodes}|2026-11-30T{end}\n"


GOOD = row("17") + row("17.batch", "node1", 1) + row("17.0", tasks=2)


def start(rank: int, size: int = 2, host: str | None = None, **fields: object) -> str:
    """Return a start line."""
    named = {"host": host or f"node{rank + 1}", **fields}
    return f"rank {rank}/{size} start " + " ".join(f"{name}={value}" for name, value in named.items())


def end(rank: int, size: int = 2, **fields: object) -> str:
    """Return an end line."""
    return f"rank {rank}/{size} end " + " ".join(f"{name}={value}" for name, value in fields.items())


def started(first: dict[str, object], second: dict[str, object]) -> list[str]:
    """Return what two ranks print whose start lines have these fields."""
    return [start(0, **first), start(1, **second), end(0), end(1)]


def ended(first: dict[str, object], second: dict[str, object]) -> list[str]:
    """Return what two ranks print whose end lines have these fields."""
    return [start(0), start(1), "epoch 0: loss 0.5", end(0, **first), end(1, **second)]


TWO = ended({"steps": 20}, {"steps": 20})


@dataclass
class Job:
    """A job in a folder.

    Args:
        folder: Where it was submitted.
        rows: What sacct says; without a mark between columns, why it does not answer.
    """

    folder: Path
    rows: str = GOOD

    def log(self, lines: Sequence[str], name: str = "slurm-17.out") -> Job:
        """Write a log."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines))
        return self

    def verify(self, target: str = "17", **options: object) -> Report:
        """Verify it."""

        def ask(job: str) -> Accounting:
            if "|" not in self.rows:
                return Accounting((), problem=self.rows)
            return Accounting(tuple(parse_sacct(f"{HEADER}\n{self.rows}")))

        return verify(target, folder=self.folder, ask=ask, **options)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """Make the folder of a job, on a machine without Slurm."""
    monkeypatch.setenv("PATH", "")
    return Job(tmp_path)


def expect(report: Report, verdict: Verdict, name: str, *words: str) -> Check:
    """Expect a verdict, and words in the evidence or hint of the check that decides it."""
    assert report.verdict is verdict, report.text()
    check = next(check for check in report.checks if check.verdict is verdict)
    assert check.name == name, report.text()
    assert all(word in f"{check.evidence}\n{check.hint}" for word in words), report.text()
    assert bool(check.hint) is (verdict is not PASSED)
    return check


# Good jobs

FOUR = [start(rank, 4, f"node{rank // 2 + 1}") for rank in range(4)] + [end(rank, 4, steps=0) for rank in range(4)]

GOOD_JOBS = {
    "labels": (GOOD, [f"{number % 2}: {line}" for number, line in enumerate(TWO)]),
    "a launcher in each task": (GOOD, FOUR),
    "no srun, one node": (row("17", "node1") + row("17.batch", "node1", 1), [start(0, 1), end(0, 1)]),
    "two steps, one after the other": (GOOD + row("17.1", tasks=2), TWO + TWO),
    "torchrun started the ranks again": (GOOD, [start(0), start(1), *TWO]),
    "requeued": (row("17", state="REQUEUED|0:0") + row("17.0", tasks=2, state="FAILED|1:0") + GOOD, TWO[:2] + TWO),
    "hosts with names of their own": (GOOD, started({"host": "a"}, {"host": "b"})),
}


@pytest.mark.parametrize("name", GOOD_JOBS)
def test_a_good_job(job, name):
    """A good job passes, whatever else its program does not say."""
    job.rows, lines = GOOD_JOBS[name]
    report = job.log(lines).verify()

    assert report.verdict is PASSED, report.text()
    assert [check.name for check in report.checks][:4] == ["job", "steps", "rank lines", "world"]


def test_a_job_of_the_scaling_study(job):
    """Steps of 1, 2 and 4 tasks that print into folders of their own are each one world."""
    job.rows = row("17", "node[1-4]") + row("17.0", "node[1-4]", 4)
    for number, (size, nodes) in enumerate([(1, "node1"), (2, "node[1-2]"), (4, "node[1-4]")] * 2, start=1):
        job.rows += row(f"17.{number}", nodes, size)
        folder = f"results/scaling_17/nodes-{size}-repeat-{number // 4}"
        for rank in range(size):
            job.log([start(rank, size, job=17), end(rank, size, steps=60)], f"{folder}/rank_{rank}.log")
        job.log(["epoch,train_loss", "1,0.5", "2,0.4"], f"{folder}/metrics.csv")
    report = job.verify()

    assert report.verdict is PASSED, report.text()
    assert report.checks[-1].evidence.endswith("and 5 more")


# Broken jobs

ALONE = [start(0, 1, "node1"), start(0, 1, "node2"), end(0, 1), end(0, 1)]
STANDALONE = [start(0, 2, "node1"), start(0, 2, "node2"), start(1, 2, "node1"), start(1, 2, "node2")]
STANDALONE += [end(rank) for rank in (0, 0, 1, 1)]
ON_ONE = started({}, {"host": "node1"})
UNLIKE = ended({"params": "ab" * 6}, {"params": "cd" * 6})
RUNS = row("17", state="RUNNING|0:0")
STOPPED = "CANCELLED by 1001|0:9"


@pytest.mark.parametrize(
    ("verdict", "name", "rows", "lines", "words"),
    [
        (FAILED, "job", row("17", state="FAILED|1:0"), [], ["FAILED 1:0, 2 nodes (node[1-2])", "srunbook explain 17"]),
        (FAILED, "job", row("17", state="FAILED|75:0"), TWO, ["submit it again, with the same --checkpoint-dir"]),
        (FAILED, "job", row("17", state="CANCELLED by 1001|0:0"), TWO, ["CANCELLED 0:0", "somebody ended it"]),
        (FAILED, "job", row("17", state="TIMEOUT|0:0"), TWO, ["TIMEOUT 0:0", "ask for more with --time"]),
        (FAILED, "job", row("17", "None assigned", state="CANCELLED by 1001|0:0"), TWO, ["it never started"]),
        (FAILED, "steps", GOOD.replace("17.0|COMPLETED|0:0", "17.0|FAILED|1:0"), TWO, ["17.0 is FAILED 1:0"]),
        (FAILED, "steps", GOOD + row("17.1", tasks=2, state=STOPPED, end="10:01:29"), TWO, ["17.1 is CANCELLED 0:9"]),
        (NOT_PROVEN, "job", "", TWO, ["sacct knows no job 17"]),
        (NOT_PROVEN, "job", "this machine has no sacct", TWO, ["this machine has no sacct"]),
        (NOT_PROVEN, "job", f"{row('17', state='NODE_FAIL|0:0')}{RUNS}", TWO, ["attempt 2, before it NODE_FAIL"]),
        (NOT_PROVEN, "rank lines", GOOD, ["hello"], ["no rank printed a start line in"]),
        (NOT_PROVEN, "rank lines", GOOD, ["rank 2/2 start"], ["a world of 2 has no rank 2", "one call"]),
        (NOT_PROVEN, "rank lines", GOOD, [start(0, job=16), start(1, job=16)], ["only lines of job 16"]),
        (FAILED, "world", GOOD, ALONE, ["2 worlds of 1 rank", "--nnodes is missing or --standalone is given"]),
        (FAILED, "world", GOOD, STANDALONE, ["2 worlds of 2 ranks", "--standalone is given"]),
        (FAILED, "world", GOOD, [start(0), start(0, host="node2"), end(0), end(0)], ["not in the batch script"]),
        (NOT_PROVEN, "world", GOOD, [start(0), end(0)], ["1 of 2 ranks", "not rank 1", "--log FILE"]),
        (NOT_PROVEN, "rank lines", GOOD, [*TWO, end(1)], ["an end line without a start line: rank 1/2"]),
        (FAILED, "hosts", GOOD, ON_ONE, ["2 ranks ran on node1; the job"]),
        (FAILED, "backend", GOOD, started({"backend": "nccl"}, {"backend": "gloo"}), ["rank 1 used gloo"]),
        (NOT_PROVEN, "backend", GOOD, started({"backend": "nccl"}, {}), ["rank 1 does not say backend="]),
        (NOT_PROVEN, "ends", GOOD, TWO[:2], ["no rank printed an end line"]),
        (FAILED, "ends", GOOD, TWO[:4], ["rank 1 printed no end line; 1 of 2 did", "srunbook explain 17"]),
        (FAILED, "ends", GOOD, ended({"loss": "nan"}, {"loss": 0.5}), ["rank 0 ended with loss nan", "diverged"]),
        (NOT_PROVEN, "ends", GOOD, ended({"steps": 20}, {"steps": 19}), ["20, 19", "Join"]),
        (FAILED, "parameters", GOOD, UNLIKE, ["rank 1 has cdcdcdcdcdcd", "DistributedDataParallel"]),
        (NOT_PROVEN, "world", GOOD + row("17.1", tasks=2), STANDALONE, ["run one step after the other"]),
        (NOT_PROVEN, "steps", row("17") + row("17.batch", "node1", 1), ["trained"], ["no step of srun"]),
        # torchrun --standalone in the script, after a step of four tasks
        (NOT_PROVEN, "world", row("17", "node1") + row("17.0", "node1", 4), ON_ONE, ["start them with srun"]),
        (NOT_PROVEN, "world", GOOD + row("17.1", tasks=4), TWO, ["17.1 has 4 tasks and printed no rank lines"]),
        (NOT_PROVEN, "hosts", GOOD, started({"host": "a"}, {"host": "a"}), ["host=$SLURMD_NODENAME"]),
    ],
)
def test_a_bad_job(job, verdict, name, rows, lines, words):
    """What is wrong with a job or its ranks has failed, with a hint that fits; what they leave open is not proven."""
    job.rows = rows

    expect(job.log(lines).verify(), verdict, name, *words)


def test_a_step_in_the_background(job):
    """A step that still runs when the script ends is no failure: Slurm cancels it."""
    job.rows = GOOD + row("17.1", tasks=2, state=STOPPED)

    assert job.log(TWO).verify().verdict is PASSED


def test_the_backend_that_was_asked_for(job):
    """`backend` is the one that all ranks should have used."""
    job.log(started({"backend": "gloo"}, {"backend": "gloo"}))

    assert job.verify(backend="gloo").verdict is job.verify().verdict is PASSED
    expect(job.verify(backend="nccl"), FAILED, "backend", "rank 1 used gloo; expected nccl")
    expect(job.log(TWO).verify(backend="nccl"), NOT_PROVEN, "backend", "does not say backend=")


# Arrays and heterogeneous jobs


@pytest.mark.parametrize("target", ["56_1", "57"])
def test_an_element_by_either_number(job, target):
    """An element alone is known by two numbers; the log of another element with its number is not its own."""
    job.rows = row("56_1", raw="57") + row("56_1.0", tasks=2, raw="57.0")
    job.log(TWO, "slurm-56_1.out").log(["x"], "slurm-57_1.out").log(["x"], "slurm-156_1.out")
    report = job.verify(target)

    assert report.verdict is PASSED, report.text()
    assert "2 ranks in" in report.text()
    assert " more" not in report.text()


def test_a_heterogeneous_job(job):
    """Components have checks of their own; which of them a step used isn't known, so its ranks prove nothing."""
    job.rows = row("56+0", "node1") + row("56+0.0", "node1", 1) + row("56+1", "node2", raw="57")
    job.rows += row("56+1.0", "node2", 1, raw="57.0")
    whole = job.log(TWO, "slurm-56.out").verify("56")
    job.rows = job.rows.replace("56+1.0|57.0|COMPLETED|0:0", "56+1.0|57.0|OUT_OF_MEMORY|0:125")

    checks = [(check.name, check.verdict) for check in whole.checks]
    assert checks[:4] == [(f"56+{part} {name}", PASSED) for part in (0, 1) for name in ("job", "steps")]
    assert checks[4:] == [("ranks", NOT_PROVEN)]
    expect(job.verify("56+1"), FAILED, "56+1 steps", "56+1.0 is OUT_OF_MEMORY")


# Logs


@pytest.mark.parametrize("name", ["ddp-17.out", "x.o17", "logs/job17.log"])
def test_a_log_with_the_number_in_its_name(job, name):
    """If Slurm names no log, a file with the job's number in its name is one; without a log nothing is proven."""
    job.log(["of another job"], "ddp-171.out").log(["of an element"], "slurm-56_17.out").log(["x"], "17.csv")

    expect(job.verify(), NOT_PROVEN, "rank lines", "found no log of job 17", "--log FILE")
    assert f"2 ranks in {job.folder / name}" in job.log(TWO, name).verify().text()


# Folders of results


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it holds no numbers"),
        ("epoch,loss\n1,0.5\n2,nan\n3,0.1\n", "line 3: loss is nan"),
        ("epoch,loss\n1,0.5\n2,0.4\n4,0.1\n", "epoch 3 is missing"),
        ("epoch,loss\n1,0.5\n2,0.4\n", "the last epoch is 2; 3 epochs were asked for"),
        ("epoch,loss\n1,0.5\n2\n", "line 3 has 1 cells and the header 2"),
        ("epoch,loss,gpu\n1,0.5,\n2,0.4,\n3,0.3,", ""),
        ("epoch,step,loss,val\n0,10,0.5,\n0,20,,0.6\n1,30,0.4,\n2,40,,0.5\n", ""),  # Lightning's CSVLogger
        ('epoch,"loss, train"\n1,0.5\n2,0.4\n3,0.3\n', ""),
    ],
)
def test_metrics(job, text, words):
    """A table that is empty, torn or incomplete, or holds NaN, has failed; its header says which columns there are."""
    job.log(started({"epochs": 3}, {"epochs": 3}))
    report = job.log(text.splitlines(), "results/ddp_cpu_17/metrics.csv").verify()

    if words:
        expect(report, FAILED, "metrics.csv", words)
    else:
        assert report.verdict is PASSED, report.text()


def test_required_files(job):
    """A file that has to be there and is missing or empty has failed."""
    job.log(TWO).log(["x"], "results/a_17/model.pt").log([], "results/a_17/empty")

    assert job.verify(require=["model.pt"]).verdict is PASSED
    expect(job.verify(require=["empty", "other"]), FAILED, "files", "empty is empty, other is missing in")


def test_a_folder_of_results(job):
    """A folder leads to its job by its name, and to the logs of its ranks; without a job there is no accounting."""
    for rank in (0, 1):
        job.log([start(rank, job=17), end(rank)], f"results/ddp_cpu_17/rank_{rank}.log")
    report = job.verify("results/ddp_cpu_17")

    assert (report.job, report.verdict) == ("17", PASSED), report.text()
    expect(job.log(TWO, "mine/rank_0.log").verify("mine"), NOT_PROVEN, "job", "does not end with a job id")


@pytest.mark.parametrize("target", ["nowhere", "017", "56_"])
def test_neither_job_nor_folder(job, target):
    """Anything else is an error."""
    with pytest.raises(TargetError, match="neither a job id"):
        job.verify(target)


# Whatever lies in a folder


def test_files_that_are_no_text(job):
    """Bytes that are no text, and pipes in the place of logs and tables, end in a verdict."""
    results = job.folder / "results" / "a_17"
    results.mkdir(parents=True)
    for path in (results / "rank_0.log", results / "metrics.csv", job.folder / "17.out"):
        os.mkfifo(path)
    pipes = job.verify()
    (job.folder / "17.log").write_bytes(b"\xff\xfe\0rank \xff\n" + "\n".join(TWO).encode())
    (results / "rank_0.log").unlink()

    assert "not a regular file" in pipes.text()
    assert job.verify().verdict is PASSED, job.verify().text()
