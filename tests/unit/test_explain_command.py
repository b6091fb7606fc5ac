"""`srunbook explain` as it is typed."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.pretend_sacct import install_sacct

from srunbook.cli import main
from srunbook.explain import JobLogs, Status, explain, find_job
from srunbook.slurm import Accounting, OutputFiles, parse_sacct

NCCL = "0: RuntimeError: Distributed package doesn't have NCCL built in"
PAGE = "https://srunbook.readthedocs.io/en/latest/troubleshooting/torch-nccl-without-gpu.html"


def run(*arguments, stdin=None):
    return CliRunner().invoke(main, ["explain", *map(str, arguments)], input=stdin)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Work in an empty folder, on a machine without Slurm."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_log_with_a_message(folder):
    """The report names rank, node, line, fix and page."""
    (folder / "slurm-17.out").write_text(f"rank 0/2 start host=node1\n{NCCL}\n")
    result = run("slurm-17.out")

    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "The first failure: rank 0 on node1, slurm-17.out, line 2",
        "",
        "    RuntimeError: Distributed package doesn't have NCCL built in",
        "",
        "  Fix:  Ask for GPUs in the job script, or choose `gloo` where there are none.",
        f"  Page: {PAGE}",
    ]


def test_log_of_the_standard_input():
    """A log may come through a pipe, gzipped as well."""
    assert run("-", stdin=f"{NCCL}\n").exit_code == 0
    assert PAGE in run("-", stdin=gzip.compress(NCCL.encode())).stdout


def test_json(folder):
    """For programs the same is told as JSON."""
    (folder / "rank_3.log").write_text(NCCL)
    told = json.loads(run("--json", "rank_3.log").stdout)

    assert told["status"] == "explained"
    assert (told["cause"]["entry"], told["cause"]["rank"], told["cause"]["page"]) == ("torch-nccl-without-gpu", 0, PAGE)
    assert told["logs"] == [{"name": "rank_3.log", "bytes": len(NCCL)}]


def test_unknown_failure(folder):
    """Where no entry knows the failure, the command says so, and quotes it."""
    (folder / "a.log").write_text("1: Traceback (most recent call last):\n1: ValueError: bad row\n")
    result = run("a.log")

    assert result.exit_code == Status.UNKNOWN
    assert result.stdout == "No entry knows the first failure: rank 1, a.log, line 2\n\n    ValueError: bad row\n"


def test_nothing_failed(folder):
    """Where nothing speaks of a failure, the command names the one that judges a job."""
    (folder / "a.log").write_text("step 1 loss 0.5\n")
    result = run("a.log")

    assert result.exit_code == Status.NOTHING_FAILED
    assert "srunbook verify JOBID" in result.stdout


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("gone.log", "gone.log: No such file or directory"),
        ("empty.log", "empty.log: the file is empty"),
        (".", ".: a folder, not a regular file: give the logs in it, as in ./*.out"),
        ("4711", "accounting says nothing of job 4711: this machine has no sacct"),
        ("a\x1b[2Jb", "a\\x1b[2Jb: No such file or directory"),
        ("cut.log.gz", "cut.log.gz: the gzip file is cut off: only what it holds was read"),
    ],
)
def test_bad_input(folder, target, said):
    """What cannot be read is told in a line, with status 2, and the other logs are explained all the same."""
    (folder / "empty.log").write_text("")
    (folder / "cut.log.gz").write_bytes(gzip.compress(b"step 1\n" * 9)[:-9])
    (folder / "good.log").write_text(NCCL)
    alone, beside = run(target), run(target, "good.log")

    assert alone.exit_code == beside.exit_code == Status.BAD_INPUT
    assert alone.stderr.splitlines() == [f"srunbook explain: {said}"]
    assert PAGE in beside.stdout


def test_unreadable_log(folder, monkeypatch):
    """A log of another user is named, and so is the reason."""
    (folder / "theirs.log").write_text(NCCL)
    real = os.open

    def refuse(path, *arguments, **options):
        if str(path).endswith("theirs.log"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    result = run("theirs.log")

    assert result.exit_code == Status.BAD_INPUT
    assert result.stderr == "srunbook explain: theirs.log: Permission denied\n"


def test_redacted(folder):
    """With --redact, neither the report nor the complaints name users, homes, hosts or addresses."""
    home = folder / "home" / "alice"
    home.mkdir(parents=True)
    log = home / "rank_1.log"
    log.write_text("rank 1/2 start host=gpu17\nOSError: /home/alice/x on gpu17 (10.1.2.3), HF_TOKEN=hf_abcdefghijkl\n")
    for arguments in (["--redact", log], ["--redact", "--json", log], ["--redact", log, "/home/alice/gone.log"]):
        result = run(*arguments)

        assert "OSError" in result.stdout
        assert not any(secret in result.output for secret in ("alice", "gpu17", "10.1.2.3", "hf_abc", "/home"))


ROWS = (
    "JobID|JobIDRaw|State|ExitCode|NNodes|NTasks|Elapsed|NodeList|Partition|End\n"
    "17|17|{state}|{code}|2||00:01:00|node[1-2]|batch|2026-11-20T10:00:00\n"
    "17.0|17.0|{state}|{code}|2|2|00:01:00|node[1-2]||2026-11-20T10:00:00\n"
)


def job(paths, state="FAILED", code="1:0"):
    """Return what finds job 17, which left some logs."""
    text = ROWS.format(state=state, code=code)

    def found(number):
        return find_job(
            number,
            ask=lambda _: Accounting(tuple(parse_sacct(text)), text=text),
            outputs=lambda _: {"17": OutputFiles(str(paths[0]), str(paths[-1]))},
        )

    return found


def test_job_with_logs(folder):
    """The output and the errors of a job are both read."""
    (folder / "a.out").write_text("step 1\n")
    (folder / "a.err").write_text(NCCL)
    found = explain(["17"], job=job([folder / "a.out", folder / "a.err"]))

    assert found.problems == ()
    assert found.report.status is Status.EXPLAINED
    assert found.report.text().startswith("Job 17: FAILED 1:0\nThe first failure: rank 0, ")


def test_job_that_ended_well(folder):
    """A job that Slurm calls COMPLETED has no failure, whatever it printed; verify judges it."""
    (folder / "a.out").write_text("ValueError: tried again\n")
    report = explain(["17"], job=job([folder / "a.out"], "COMPLETED", "0:0")).report

    assert report.status is Status.NOTHING_FAILED
    assert "srunbook verify 17" in report.text()


def test_job_without_a_log(folder):
    """Where the log of a job is gone, its place is named."""
    found = explain(["17"], job=job([folder / "a.out"]))

    assert found.problems == (f"no log of job 17 was found; Slurm names {folder}/a.out: give its logs",)
    assert found.report.diagnosis.to_search == ()


def test_job_that_waits():
    """Of a job that waits, squeue's reason is looked up."""

    class Done:
        returncode, stderr = 0, ""
        stdout = (
            "PENDING (Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions)\n"
        )

    found = explain(
        ["17"],
        job=lambda number: find_job(number, ask=lambda _: Accounting(), outputs=lambda *_: {}, run=lambda _: Done()),
    )

    assert found.problems == ()
    assert found.report.diagnosis.cause.slug == "gloo-job-pending"


def test_job_that_is_not_there(folder, monkeypatch):
    """A job that Slurm does not know is named, with how to find its number."""
    (folder / "slurm").mkdir()
    monkeypatch.setenv("PATH", f"{install_sacct(folder / 'slurm', [])}:/usr/bin:/bin")
    result = run("4711")

    assert result.exit_code == Status.BAD_INPUT
    assert "Slurm knows no job 4711: look for its number with sacct --starttime=now-7days" in result.stderr


def test_number_that_is_a_file(folder):
    """A file whose name is a number is a log."""
    (folder / "17").write_text(NCCL)

    assert explain(["17"], job=lambda _: JobLogs("17", problems=["asked"])).problems == ()


def test_many_logs_are_shared_out(folder, monkeypatch):
    """Several processes find the same as one."""
    for rank in range(8):
        (folder / f"rank_{rank}.log").write_text(f"2026-11-20 10:00:0{9 - rank}\n{NCCL}\n" + "step 1\n" * 1000)
    names = [f"rank_{rank}.log" for rank in range(8)]
    alone = explain(names).report.json()
    monkeypatch.setattr("srunbook.explain._explain.WORTH_SHARING", 0)

    assert explain(names).report.json() == alone
    assert json.loads(alone)["cause"]["log"] == "rank_7.log"


def test_empty_error_log_of_a_job(folder):
    """A job may have written nothing to one of its logs; only if all are empty there is nothing to read."""
    (folder / "a.out").write_text(NCCL)
    (folder / "a.err").write_text("")
    (folder / "b.out").write_text("")

    assert explain(["17"], job=job([folder / "a.out", folder / "a.err"])).problems == ()
    assert explain(["17"], job=job([folder / "b.out"])).problems == (f"{folder}/b.out: the file is empty",)


def test_closed_log_beside_another(folder, monkeypatch):
    """A log that cannot be opened is told, whatever the others hold."""
    (folder / "a.out").write_text(NCCL)
    (folder / "a.err").write_text("")
    real = os.open

    def refuse(path, *arguments, **options):
        if str(path).endswith("a.err"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)

    assert explain(["17"], job=job([folder / "a.out", folder / "a.err"])).problems == (
        f"{folder}/a.err: Permission denied",
    )


def test_log_that_is_not_mine(folder, monkeypatch):
    """Where the folder of a log is closed, that is told apart from a log that is gone."""
    real = Path.stat
    closed = folder / "theirs" / "slurm-17.out"

    def stat(path, **options):
        if path == closed:
            raise PermissionError(13, "Permission denied")
        return real(path, **options)

    monkeypatch.setattr(Path, "stat", stat)
    found = explain(["17"], job=job([closed]))

    assert found.problems == (
        f"{closed}: Permission denied: whoever submitted job 17 can run srunbook explain --redact 17",
    )
    assert found.report.text().startswith("Job 17: FAILED 1:0\nNo log was read.\n")


def test_state_is_told_without_a_log(folder, monkeypatch):
    """What accounting says is told even where no log is left."""
    (folder / "slurm").mkdir()
    row = {"JobID": "17", "State": "CANCELLED by 7", "ExitCode": "0:0", "NNodes": "1", "Elapsed": "00:00:09"}
    row |= {"NodeList": "node1", "Partition": "batch", "End": "2026-11-20T10:00:00"}
    monkeypatch.setenv("PATH", f"{install_sacct(folder / 'slurm', [row])}:/usr/bin:/bin")
    result = run("17")

    assert result.exit_code == Status.BAD_INPUT
    assert "no log of job 17 was found" in result.stderr
    assert result.stdout.splitlines() == [
        "Job 17: CANCELLED 0:0",
        "No log was read.",
        "To check that the job did what it should: srunbook verify 17",
    ]


def test_element_that_failed():
    """Of an array, the state of an element that failed is told."""
    rows = "JobID|JobIDRaw|State|ExitCode\n56_1|57|RUNNING|0:0\n56_2|58|FAILED|3:0\n56_3|56|COMPLETED|0:0\n"
    accounting = Accounting(tuple(parse_sacct(rows)), text=rows)
    found = find_job("56", ask=lambda _: accounting, outputs=lambda _: {}, run=nothing)

    assert found.state == "56_2 FAILED 3:0"


def test_accounting_that_is_switched_off():
    """Without accounting, the state is what squeue still knows, and that is told."""

    def run(command):
        states = "17 TIMEOUT\n" if "--states=all" in command else ""
        return subprocess.CompletedProcess(command, 0, states, "")

    off = Accounting(problem="Slurm accounting storage is disabled")
    found = find_job("17", ask=lambda _: off, outputs=lambda _: {}, run=run)

    assert found.state == "TIMEOUT"
    assert found.problems[0] == "accounting says nothing of job 17: Slurm accounting storage is disabled"


def nothing(command):
    """Answer a command of Slurm with nothing."""
    return subprocess.CompletedProcess(command, 0, "", "")


def test_logs_of_a_step(folder):
    """What a step writes beside the log of its job is found: one file for each of its tasks."""
    (folder / "logs").mkdir()
    for task in range(3):
        (folder / "logs" / f"17_{task}.out").write_text(NCCL)
    (folder / "logs" / "18_0.out").write_text(NCCL)
    values = {"17": "", "17.batch": "", "17.0": "srun -n3 --output=logs/%j_%t.out python train.py -o model.pt"}

    def run(command):
        options = dict(word.removeprefix("--").partition("=")[::2] for word in command[1:])
        if command[0] != "sacct" or "SubmitLine" not in options["format"]:
            return nothing(command)
        mark, columns = options["delimiter"], options["format"].split(",")
        told = {"JobName": "train", "User": "alice", "NodeList": "node1", "NTasks": "3"}
        rows = [
            {**told, "JobID": one, "JobIDRaw": one, "WorkDir": str(folder) if one == "17" else "", "SubmitLine": line}
            for one, line in values.items()
        ]
        lines = [columns, *([row[column] for column in columns] for row in rows)]
        return subprocess.CompletedProcess(command, 0, "\n".join(mark.join(line) for line in lines) + "\n", "")

    text = ROWS.format(state="FAILED", code="1:0")
    found = find_job("17", ask=lambda _: Accounting(tuple(parse_sacct(text)), text=text), outputs=lambda _: {}, run=run)

    assert found.paths == [folder / "logs" / f"17_{task}.out" for task in range(3)]
    assert found.problems == []
