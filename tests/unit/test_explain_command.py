"""`srunbook explain` as it is typed: on logs, on jobs, and on dumps of PyTorch's flight recorder."""

from __future__ import annotations

import gzip
import json
import pickle
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from srunbook.cli import main
from srunbook.explain import Status, explain

NCCL = "0: RuntimeError: Distributed package doesn't have NCCL built in"
PAGES = "https://srunbook.readthedocs.io/en/latest/troubleshooting"
PAGE = f"{PAGES}/torch-nccl-without-gpu.html"


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
        "  Fix:  Ask for GPUs in the job script, `#SBATCH --gpus-per-node=4`, or use the `gloo` backend on CPU nodes.",
        f"  Page: {PAGE}",
    ]


def test_json():
    """For programs the same is told as JSON; a log may come through a pipe, gzipped as well."""
    packed = gzip.compress(NCCL.encode())
    told = json.loads(run("--json", "-", stdin=packed).stdout)

    assert told["status"] == "explained"
    assert (told["cause"]["entry"], told["cause"]["rank"], told["cause"]["page"]) == ("torch-nccl-without-gpu", 0, PAGE)
    assert [log["bytes"] for log in told["logs"]] == [len(packed)]


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
        ("4711", "accounting says nothing of job 4711: this machine has no sacct"),
        ("cut.log.gz", "cut.log.gz: the gzip file is cut off: only what it holds was read"),
    ],
)
def test_bad_input(folder, target, said):
    """What cannot be read is named on one line, with status 2, and the other logs are explained all the same."""
    (folder / "cut.log.gz").write_bytes(gzip.compress(b"step 1\n" * 9)[:-9])
    (folder / "good.log").write_text(NCCL)
    result = run(target, "good.log")

    assert result.exit_code == Status.BAD_INPUT
    assert result.stderr.splitlines() == [f"srunbook explain: {said}"]
    assert PAGE in result.stdout


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
    "17|17|FAILED|1:0|2||00:01:00|node[1-2]|batch|2026-11-20T10:00:00\n"
    "17.0|17.0|FAILED|1:0|2|2|00:01:00|node[1-2]||2026-11-20T10:00:00\n"
)


def slurm(*paths: Path, rows=ROWS, queue="", reason=""):
    """Return what answers as Slurm does of job 17, which writes to its first path, and its errors to the last one."""
    shown = f"JobId=17 JobName=x\n   StdErr={paths[-1]}\n   StdOut={paths[0]}\n" if paths else ""

    def answer(command):
        of_rows = command[0] == "sacct" and not any(word.startswith("--delimiter") for word in command)
        said = {"scontrol": shown, "sacct": rows if of_rows else ""}.get(command[0], reason)
        return subprocess.CompletedProcess(command, 0, queue if "--states=all" in command else said, "")

    return answer


def test_job_with_logs(folder):
    """The output and the errors of a job are both read; one of them may be empty."""
    out, err, empty = folder / "a.out", folder / "a.err", folder / "b.err"
    out.write_text("step 1\n")
    err.write_text(NCCL)
    empty.write_text("")
    found = explain(["17"], run=slurm(out, err))

    assert (found.problems, found.report.status) == ((), Status.EXPLAINED)
    assert found.report.text().startswith("Job 17: FAILED 1:0\nThe first failure: rank 0, ")
    assert explain(["17"], run=slurm(err, empty)).problems == ()
    assert explain(["17"], run=slurm(empty)).problems == (f"{empty}: the file is empty",)


def test_job_that_waits():
    """Of a job that waits, squeue's reason is looked up."""
    reason = "PENDING (Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions)\n"
    found = explain(["17"], run=slurm(rows="", queue="17 PENDING\n", reason=reason))

    assert found.problems == ()
    assert found.report.diagnosis.cause.slug == "gloo-job-pending"


HANGS = "  Page: https://srunbook.readthedocs.io/en/latest/tools/hangs.html"
ALL_REDUCE = ("gloo:all_reduce", [[9]])


def entry(number, done=True, made=ALL_REDUCE, group=("0", "default_pg")):
    """Return what is read of an entry as PyTorch 2.13 writes it."""
    name, sizes = made
    return {
        "collective_seq_id": number,
        "input_sizes": sizes,
        "is_p2p": False,
        "process_group": [*group],
        "profiling_name": name,
        "retired": done,
        "state": "scheduled",
        "time_created_ns": 1795441273670525336 + number,
    }


def dump(*entries, version="2.10", ranks="[]"):
    """Return a dump as PyTorch 2.13 writes it."""
    config = {"": {"desc": "", "name": "", "ranks": ranks}}
    told = {"comm_lib_version": "", "entries": entries, "pg_config": config, "pg_status": {}, "version": version}
    return json.dumps(told).encode()


def ordinary(length, *more):
    """Return a dump of so many all-reduces that are done, and what came after them."""
    return dump(*(entry(number) for number in range(1, length + 1)), *more)


def explain_dumps(folder, dumps, *arguments):
    """Run the command on dumps of some ranks."""
    for rank, content in dumps.items():
        (folder / f"rank_{rank}.json").write_bytes(content)
    return CliRunner().invoke(main, ["explain", *(f"rank_{rank}.json" for rank in dumps), *arguments])


def test_rank_that_did_not_come(folder):
    """The rank that stayed behind is named with its node, and so is the collective that it missed."""
    waits = ordinary(10, entry(11, done=False))
    (folder / "job.out").write_text("0: rank 0/4 start host=node1\n2: rank 2/4 start host=node3\n")
    done = explain_dumps(folder, {0: waits, 1: waits, 2: ordinary(10), 3: gzip.compress(waits)}, "job.out")

    assert (done.exit_code, done.stderr) == (Status.EXPLAINED, "")
    assert done.stdout.splitlines() == [
        "Rank 2 on node3 did not come to collective 11, gloo:all_reduce of [9] (default_pg).",
        "Rank 2 came last to 10, gloo:all_reduce of [9].",
        "Ranks 0, 1 and 3 wait in it.",
        HANGS,
    ]


@pytest.mark.parametrize(
    ("made", "said"), [(("gloo:barrier", []), ""), (("gloo:all_reduce", [[8]]), " of [8]")], ids=["barrier", "size"]
)
def test_rank_that_made_another_collective(folder, made, said):
    """Where ranks came to different collectives, or with other sizes, both are told."""
    waits = ordinary(4, entry(5, done=False))
    done = explain_dumps(folder, {0: waits, 1: ordinary(4, entry(5, done=False, made=made)), 2: waits})

    assert done.stdout.splitlines()[:3] == [
        "Rank 1 made another collective than the other ranks.",
        f"Rank 1 made 5, {made[0]}{said}; the others made 5, gloo:all_reduce of [9] (default_pg).",
        "Ranks 0 and 2 wait in it.",
    ]


WAITS = dump(entry(1, done=False), ranks="[0, 1]")
LATE = dump(*(entry(number) for number in range(800, 900)), entry(900, done=False))
"""The recorder keeps the last entries only, and each rank others."""


FIRST = "collective 1, gloo:all_reduce of [9]"
SAID = {
    "no dump": ({0: WAITS}, f"Rank 1 left no dump, and the others wait in {FIRST}"),
    "all wait": ({0: WAITS, 1: WAITS}, f"Every rank that is known waits in {FIRST} (default_pg): "),
    "came to nothing": ({0: WAITS, 1: dump()}, f"Rank 1 did not come to {FIRST} (default_pg).\nRank 1 made"),
    "old entries were overwritten": (
        {0: LATE, 1: dump(*(entry(number) for number in range(700, 800)))},
        "Rank 1 did not come to collective 900,",
    ),
}


@pytest.mark.parametrize(("dumps", "said"), SAID.values(), ids=SAID)
def test_what_is_said(folder, dumps, said):
    """The first line says which rank to look at, or that none can be told."""
    assert explain_dumps(folder, dumps).stdout.startswith(said)


def test_two_groups_wait_for_each_other(folder):
    """Ranks that make the collectives of two groups in another order wait for each other; both are told."""
    pair = ("3", "undefined")
    first = dump(entry(1), entry(1, group=pair), entry(2, done=False))
    second = dump(entry(1), entry(1, group=pair), entry(2, done=False, group=pair))
    lines = explain_dumps(folder, {0: first, 1: second}).stdout.splitlines()

    assert "Rank 1 did not come to collective 2, gloo:all_reduce of [9] (default_pg)." in lines
    assert "Rank 0 did not come to collective 2, gloo:all_reduce of [9] (group 3)." in lines


def test_dump_of_another_version(folder):
    """Another version is told, with status 2, and what could be read is told, too."""
    done = explain_dumps(folder, {0: dump(entry(1, done=False), version="2.4"), 1: dump()})

    assert done.exit_code == Status.BAD_INPUT
    assert done.stderr == (
        "srunbook explain: rank_0.json: a dump of version 2.4, expected 2.10 of PyTorch 2.13: read as if it were one\n"
    )
    assert done.stdout.startswith("Rank 1 did not come to collective 1,")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("rank_0.json", dump(entry(1))[:-40], "the dump is cut off, damaged, or not of version 2.10"),
        ("nccl_trace_rank_0", pickle.dumps({}), "a pickle, which can run any program when it is read"),
    ],
)
def test_dump_that_cannot_be_used(folder, name, content, said):
    """A dump that is cut off or a pickle is told with status 2."""
    (folder / name).write_bytes(content)
    done = CliRunner().invoke(main, ["explain", name])

    assert done.exit_code == Status.BAD_INPUT
    assert done.stderr.startswith(f"srunbook explain: {name}: {said}")
