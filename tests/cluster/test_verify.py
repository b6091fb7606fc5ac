"""`srunbook verify` on real jobs, good ones and broken ones.

All jobs are submitted at once and end beside each other; each test waits for its own.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.published import Jobs, stage

from recordings.comparing import Mask
from srunbook import cluster
from srunbook.cluster import State
from srunbook.verify import Verdict

ROOT = Path(__file__).resolve().parents[2]
TORCHRUN = ROOT / "slurm" / "torchrun" / "run_distributed.sbatch"
GLOO = ROOT / "slurm" / "gloo_ddp" / "ddp_2node_cpu.sbatch"
SCRIPT = ROOT / "scripts" / "verify_multinode.sh"

MASKS = (
    Mask(r"\b[0-9a-f]{12}\b", "<hash>", "sums over a network round in the order of arrival"),
    Mask(r"\bnode(\[[\d,-]+\]|\d+)", "<nodes>", "Slurm takes whichever nodes are idle"),
    Mask(r"\d[\d.:]*(e-?\d+)?", "<n>", "ids, sizes and times differ, and processors round in different ways"),
)

RANKS = """\
import os, subprocess, sys
rank = f"rank {os.environ['SLURM_PROCID']}/{os.environ['SLURM_NTASKS']}"
place = f"host={os.environ['SLURMD_NODENAME']} local_rank={os.environ['SLURM_LOCALID']} pid={os.getpid()}"
sys.stdout.write(f"{rank} start {place} device=cpu backend=gloo job={os.environ['SLURM_JOB_ID']}\\n")
sys.stdout.flush()
status = subprocess.run(sys.argv[1:]).returncode
if status:
    sys.exit(status)
sys.stdout.write(f"{rank} end steps=1 params={'ab' * 6}\\n")
"""
"""A program that says what a rank says, and runs a command in between."""

RUN = "srun python3 ranks.py"
GREEDY = "python3 -c 'print(len(bytearray(300 * 2**20)))'"
AGAIN = '[ -n "$SLURM_RESTART_COUNT" ] || { scontrol requeue $SLURM_JOB_ID; sleep infinity; }'

JOBS = {
    "good": ("-N2", f"{RUN} true"),
    "failed": ("-N2", "srun --kill-on-bad-exit=1 python3 ranks.py false; exit 3"),
    "step-failed": ("-N2", f"{RUN} false; exit 0"),
    "cancelled": ("-N2", f"{RUN} sleep infinity"),
    "timeout": ("-N2 --time=60", f"{RUN} sleep infinity"),
    "out-of-memory": ("--mem=100M", f"{RUN} {GREEDY}"),
    "node-fail": ("-N2 --no-requeue --exclude=node1,node2", f"{RUN} sleep infinity"),
    "nothing": ("-N2", "exit 0"),
    "no-lines": ("-N2", "srun true"),
    "held": ("--requeue", "scontrol requeuehold $SLURM_JOB_ID; sleep infinity"),
    "again": ("-N2 --requeue --open-mode=append", f"{AGAIN}; {RUN} true"),
    "running": ("-N2", f"{RUN} sleep infinity"),
    "pending": ("--hold", "exit 0"),
    "one-host": ("-N2 --ntasks-per-node=2", "srun -N1 -n2 python3 ranks.py true"),
    "alone": ("-N2", "srun env SLURM_PROCID=0 SLURM_NTASKS=1 python3 ranks.py true"),
    "array": ("-N1 --array=1-3", f"{RUN} test $SLURM_ARRAY_TASK_ID != 2"),
    "components": ("-N1 : -N1 --exclude=node3,node4", "srun --het-group=0,1 python3 ranks.py true"),
    "two-steps": ("-N2", f"srun -n1 -N1 true; {RUN} true; {RUN} true"),
    "same-rank": ("-N2", "srun env SLURM_PROCID=0 python3 ranks.py true"),
}
"""Options of sbatch, and the command of the job."""

ENDED_FROM_OUTSIDE = ("cancelled", "node-fail", "timeout")
"""Jobs that have to have started before."""


class Verified(Jobs):
    """Jobs that `srunbook verify` judges."""

    def verify(self, *arguments: str, folder: str = "") -> subprocess.CompletedProcess[str]:
        """Run the command as the user, on the login node."""
        command = [f"/home/{cluster.USER}/torch-env/bin/srunbook", "verify", *arguments]
        return cluster.capture(self.state, command, folder=folder or self.folder)


@pytest.fixture(scope="module")
def jobs(slurm: State, until: Callable[[Callable[[], object]], object], tmp_path_factory) -> Iterator[Verified]:
    """Submit all jobs; wait until those that are to be ended from outside have started."""
    script = tmp_path_factory.mktemp("verify") / "verify.sbatch"
    script.touch()
    (script.parent / "ranks.py").write_text(RANKS)
    submitted = Verified(slurm, until, cluster.stage(slurm, script), steps_end=False)
    for name, given in JOBS.items():
        submitted.submit(name, *given, "--exclude=node3,node4")
    until(lambda: all(submitted.log(name).count("start") == 2 for name in ENDED_FROM_OUTSIDE))
    cluster.capture(slurm, ["scancel", submitted.numbers["cancelled"]])
    submitted.run_out_of_time("timeout")
    yield submitted
    cluster.capture(slurm, ["scancel", f"--user={cluster.USER}"], user=None)
    cluster.faults.heal(slurm)
    until(lambda: set(cluster.node_states(slurm).values()) == {"idle"})


@pytest.fixture(scope="module")
def dead(jobs: Verified) -> None:
    """Kill the node of one of them, and say so as its administrator does: Slurm itself takes a minute to notice."""
    cluster.faults.kill_node(jobs.state, "node4")
    down = ["scontrol", "update", "NodeName=node4", "State=DOWN", "Reason=dead"]
    assert cluster.capture(jobs.state, down, user=None).returncode == 0


@pytest.mark.parametrize("name", ["running", "held", "pending"])
def test_a_job_that_has_not_ended(jobs, until, name):
    """A job that runs, one that was requeued and waits, and one that never started are not proven."""
    sentence = {
        "running": "not proven  job  RUNNING, 2 nodes (node[1-2]), elapsed 00:",
        "held": "; attempt 2, before it REQUEUED",
        "pending": "not proven  job  PENDING, 1 node, elapsed 00:00:00",
    }[name]  # accounting hears of a requeue in two steps
    until(lambda: sentence in (said := jobs.verify(jobs.numbers[name])).stdout and said.returncode == 3)


def test_a_job_of_the_torchrun_guide(jobs):
    """The published script of another guide is verified by its job's number, where it was submitted."""
    folder = stage(jobs.state, TORCHRUN)
    job = cluster.submit(jobs.state, TORCHRUN, ["--epochs", "1"], options=["--gpus-per-node=1"], folder=folder)
    done = jobs.verify("--json", "--backend", "gloo", job.identity, folder=folder)
    report = json.loads(done.stdout)

    assert done.returncode == report["status"] == 0, done.stdout
    assert "2 ranks in slurm-" in next(check["evidence"] for check in report["checks"] if check["name"] == "rank lines")


@pytest.fixture(scope="module")
def gloo(jobs: Verified) -> tuple[str, str]:
    """Run a job of the gloo guide to its end; return its number, and the folder where it was submitted."""
    folder = stage(jobs.state, GLOO, extra=[SCRIPT])
    size = ["--epochs=3", "--days=7", "--max-steps=20"]
    job = cluster.submit(jobs.state, GLOO, size, folder=folder)
    return job.identity, folder


def test_a_job_of_the_gloo_guide(jobs, gloo, entry):
    """Every check passes for a job of the gloo guide, its folder gets two summaries, and the page shows this."""
    job, folder = gloo
    done = cluster.capture(jobs.state, ["bash", SCRIPT.name, job], folder=folder)
    results = jobs.state.folder / folder.lstrip("/") / "results" / f"ddp_cpu_{job}"

    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith("\npassed: every check passed (status 0)\n")
    assert f"{job}.0|{job}.0|COMPLETED|0:0|2|2|" in (results / "sacct_summary.txt").read_text()
    assert "| parameters | passed | " in (results / "EXECUTION_SUMMARY.md").read_text()
    entry(SCRIPT, f"bash {SCRIPT.name} {job}", done.stdout, ["."], masks=MASKS)


@pytest.mark.parametrize(
    ("name", "pattern", "instead", "sentence"),
    [
        ("metrics.csv", r"(?m)^(2,\d\.\d*),[^,]*", r"\g<1>,nan", "line 3: val_loss is nan"),
        ("metrics.csv", r"(?s).+", "", "metrics.csv is empty"),
        ("metrics.csv", r"(?m)^3,.*\n", "", "the last epoch is 2; 3 epochs were asked for"),
        ("timings.csv", r"(?s).+", "", "timings.csv is empty"),
    ],
)
def test_its_files_are_damaged(jobs, gloo, name, pattern, instead, sentence):
    """Damage to a file of that job is found."""
    job, folder = gloo
    path = jobs.state.folder / folder.lstrip("/") / "results" / f"ddp_cpu_{job}" / name
    text = path.read_text()
    path.write_text(re.sub(pattern, instead, text))
    found = cluster.capture(jobs.state, ["bash", SCRIPT.name, job], folder=folder)
    path.write_text(text)

    assert found.returncode == 1, found.stdout
    assert sentence in found.stdout


def test_an_unknown_job(jobs):
    """A number that no job has proves nothing."""
    done = jobs.verify("999999")

    assert done.returncode == 3
    assert "sacct knows no job 999999" in done.stdout


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("good", "passed: every check passed (status 0)"),
        ("again", "says sacct; attempt 2, before it REQUEUED"),
        ("two-steps", "world of 2: rank 0 on "),
    ],
)
def test_a_good_job(jobs, name, sentence):
    """A job that did its work passes: a plain one, a requeued one, one of several steps."""
    done = jobs.verify(jobs.ended(name))

    assert done.returncode == 0, done.stdout
    assert sentence in done.stdout


def test_elements_of_an_array(jobs):
    """An array is as good as its worst element; each can be checked alone, by either of its numbers."""
    number = jobs.ended("array")
    whole = jobs.verify(number)
    raw = cluster.capture(jobs.state, ["sacct", "-Xn", "-P", f"-j{number}_1", "-oJobIDRaw"]).stdout.strip()
    alone = [jobs.verify(one).returncode for one in (f"{number}_1", f"{number}_2", f"{number}_3", raw)]
    lines = [line.split()[:2] for line in whole.stdout.splitlines()]

    assert whole.returncode == 1, whole.stdout
    assert lines[2:4] == [["passed", f"{number}_1"], ["FAILED", f"{number}_2"]]
    assert ["passed", f"{number}_3"] in lines
    assert alone == [0, 1, 0, 0]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("no-lines", "no rank printed a start line in slurm-"),
        ("nothing", "2 nodes, and no step of srun"),
        ("components", "a step of a heterogeneous job may use several components"),
    ],
)
def test_a_job_that_proves_nothing(jobs, name, sentence):
    """A good job whose program prints no rank lines is not proven, and neither is one without a step."""
    done = jobs.verify(jobs.ended(name))

    assert done.returncode == 3, done.stdout
    assert sentence in done.stdout


@pytest.mark.parametrize(
    ("name", "sentence", "hint"),
    [
        ("failed", "FAILED 3:0, 2 nodes (node[1-2]), elapsed 00:", "srunbook explain"),
        ("step-failed", ".0 is FAILED 1:0; expected COMPLETED 0:0", "srunbook explain"),
        ("cancelled", "CANCELLED 0:0, 2 nodes (node[1-2]), elapsed 00:", "somebody ended it"),
        ("out-of-memory", "expected COMPLETED 0:0", "srunbook explain"),
        ("node-fail", "job         NODE_FAIL ", "srunbook explain"),
        ("one-host", "2 ranks ran on node1; the job was given node1, node2", "start the tasks on all nodes"),
        ("alone", "2 worlds of 1 rank", "--nnodes is missing or --standalone is given"),
        ("same-rank", "2 worlds of 2 ranks", "not in the batch script"),
        ("timeout", "TIMEOUT 0:0, 2 nodes (node[1-2]), elapsed 00:", "srunbook explain"),
    ],
)
def test_a_bad_job(jobs, dead, name, sentence, hint):
    """Each way in which a real job goes wrong has a sentence and a hint of its own."""
    if name == "out-of-memory":
        assert jobs.state.plugins["constrain"], "this machine has no cgroup version 1: no memory limits"
    done = jobs.verify(jobs.ended(name))

    assert done.returncode == Verdict.FAILED.status, done.stdout
    lines = done.stdout.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("FAILED"))
    assert sentence in lines[first]
    assert "next: " in lines[first + 1]
    assert hint in lines[first + 1]
