"""`srunbook explain` on real jobs: it finds their logs by number, and what accounting and scontrol say.

All jobs are submitted at once and end beside each other; each test waits for its own.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator

import pytest
from support.published import Jobs

from srunbook import cluster
from srunbook.cluster import State
from srunbook.explain import Status

COMMAND = ["env", "PYTHONPATH=/opt/srunbook/src", f"/home/{cluster.USER}/torch-env/bin/srunbook", "explain"]
"""The command of this checkout, which the cluster was started from."""

ON_ONE = """if [ $SLURM_PROCID = 0 ]; then echo waits; exec sleep infinity; fi
python3 -c "import torch" && exit
until grep -q "^0: waits" $LOG && grep -q "^1: ModuleNotFoundError" $LOG; do sleep 0.1; done; exit 1"""
"""Rank 1 fails. Slurm may lose what is on its way when it kills a step, so the rank waits until its line is written."""

GREEDY = "python3 -c 'print(len(bytearray(300 * 2**20)))'"
OFF = "sed 's|/slurmdbd|/none|; /^AccountingStorage[EHT][^y]/d' /etc/slurm/slurm.conf >slurm.conf"
"""Writes the configuration of a site that keeps no accounts, as far as commands of users see."""

JOBS = {
    "timeout": ("--time=1", "srun bash -c 'echo runs; exec sleep 600'"),
    "warned": ("", "srun bash -c 'echo runs; exec sleep 600'"),
    "one-node": (
        "-N2 --job-name=train --output=%x-%j.log",
        f"LOG=train-$SLURM_JOB_ID.log srun --label --kill-on-bad-exit=1 bash -c '{ON_ONE}'",
    ),
    "memory": ("--mem=100M", f"srun {GREEDY}"),
    "array": (
        "--array=1-3 --output=%x-%A.%a.log --error=%A_%a.err",
        "date; srun test $SLURM_ARRAY_TASK_ID != 2 || no-such",
    ),
    "deleted": ("", "echo lost; exit 3"),
}
"""Options of sbatch, and the command of the job."""


class Explained(Jobs):
    """Jobs that `srunbook explain` looks at."""

    def explain(self, *arguments: str, variables: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        """Run the command as the user, on the login node."""
        return cluster.capture(self.state, [COMMAND[0], *variables, *COMMAND[1:], *arguments], folder=self.folder)


@pytest.fixture(scope="module")
def jobs(slurm: State, until: Callable[[Callable[[], object]], object], tmp_path_factory) -> Iterator[Explained]:
    """Submit all jobs; end the time of the one that waits for that."""
    script = tmp_path_factory.mktemp("explain") / "explain.sbatch"
    script.touch()
    submitted = Explained(slurm, until, cluster.stage(slurm, script))
    for name, given in JOBS.items():
        submitted.submit(name, *given)
    submitted.submit("theirs", "", "srun no-such", user=cluster.SECOND_USER)
    # A job whose time is over before it has made its step fails: the step is refused.
    until(lambda: "runs" in submitted.log("timeout"))
    submitted.run_out_of_time("timeout")
    until(lambda: "runs" in submitted.log("warned"))
    cluster.capture(slurm, ["scancel", "--batch", "--signal=USR1", submitted.numbers["warned"]])
    yield submitted
    cluster.capture(slurm, ["scancel", f"--user={cluster.USER}"], user=None)


def test_one_of_two_nodes(jobs):
    """The rank and the node of the program that failed are named, and its line is quoted."""
    done = jobs.explain("--json", jobs.ended("one-node"))
    report = json.loads(done.stdout)

    assert (done.returncode, done.stderr) == (Status[report["status"].upper()], "")
    assert report["state"].startswith("FAILED ")
    assert (report["cause"]["rank"], report["cause"]["host"][:4]) == (1, "node")
    assert report["cause"]["line"] == "ModuleNotFoundError: No module named 'torch'"
    assert report["logs"][0]["name"].endswith(f"/train-{jobs.numbers['one-node']}.log")


def test_element_of_an_array(jobs):
    """Of an array, the element that failed is named, whether or not its number was given; verify judges the others."""
    number = jobs.ended("array")
    whole, alone, other = (jobs.explain(one) for one in (number, f"{number}_2", f"{number}_1"))

    assert whole.stdout.startswith(f"Job {number}: {number}_2 FAILED 127:0\n"), whole.stdout
    assert alone.stdout.startswith(f"Job {number}_2: FAILED 127:0\n"), alone.stdout
    assert "no-such: not found" in whole.stdout
    assert f"{number}_2.err, line " in whole.stdout
    assert whole.stderr == alone.stderr == other.stderr == ""
    assert other.returncode == Status.NOTHING_FAILED, other.stdout
    assert f"srunbook verify {number}_1" in other.stdout


def test_log_that_was_deleted(jobs):
    """Where the log is gone, the command says where it was, and how the job ended."""
    number = jobs.ended("deleted")
    cluster.capture(jobs.state, ["rm", f"slurm-{number}.out"], folder=jobs.folder)
    done = jobs.explain(number)

    assert done.returncode == Status.BAD_INPUT
    assert f"{jobs.folder}/slurm-{number}.out: No such file or directory" in done.stderr
    assert done.stdout.startswith(f"Job {number}: FAILED 3:0\nNo log was read.\n")


def test_job_that_is_not_mine(jobs):
    """The log of somebody else's job is closed, which the command says."""
    number = jobs.ended("theirs")
    done = jobs.explain(number)

    assert done.returncode == Status.BAD_INPUT
    assert f"slurm-{number}.out: Permission denied" in done.stderr
    assert f"Job {number}: FAILED " in done.stdout


def test_job_that_does_not_exist(jobs):
    """A number that no job has is said to be unknown."""
    done = jobs.explain("999999")

    assert (done.returncode, done.stdout) == (Status.BAD_INPUT, "")
    assert done.stderr.startswith("srunbook explain: Slurm knows no job 999999: ")


def test_accounting_that_is_switched_off(jobs):
    """Without accounting, scontrol still knows the log, and squeue the state; the status tells what is missing."""
    number = jobs.ended("one-node")
    cluster.capture(jobs.state, ["bash", "-c", OFF], folder=jobs.folder)
    done = jobs.explain(number, variables=(f"SLURM_CONF={jobs.folder}/slurm.conf",))

    assert done.returncode == Status.BAD_INPUT
    assert done.stderr == (
        f"srunbook explain: accounting says nothing of job {number}: Slurm accounting storage is disabled\n"
    )
    assert done.stdout.startswith(f"Job {number}: FAILED\n"), done.stdout
    assert "No module named 'torch'" in done.stdout


@pytest.mark.parametrize(
    ("name", "states", "slug"),
    [
        ("memory", ("FAILED 1:0", "OUT_OF_MEMORY 0:125"), "out-of-memory"),
        ("timeout", ("TIMEOUT 0:0",), "slurm-time-limit"),
        ("warned", ("FAILED 0:10",), "slurm-signal-lost"),
    ],
)
def test_ended_by_slurm(jobs, name, states, slug):
    """A job out of memory, one out of time and one whose script died of SIGUSR1 lead to their entries."""
    if name == "memory":
        assert jobs.state.plugins["constrain"], "this machine has no cgroup version 1: no memory limits"
    done = jobs.explain("--json", jobs.ended(name))
    report = json.loads(done.stdout)

    assert (done.returncode, done.stderr) == (Status.EXPLAINED, "")
    assert report["state"] in states
    assert report["cause"]["entry"].endswith(slug)
