"""`srunbook verify` on real jobs, good ones and broken ones.

All jobs are submitted at once and end beside each other; each test waits for its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from support.published import Jobs

from srunbook import cluster
from srunbook.cluster import State

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


@pytest.fixture(scope="module")
def jobs(slurm: State, until: Callable[[Callable[[], object]], object], tmp_path_factory) -> Iterator[Jobs]:
    """Submit all jobs; wait until those that are to be ended from outside have started."""
    script = tmp_path_factory.mktemp("verify") / "verify.sbatch"
    script.touch()
    (script.parent / "ranks.py").write_text(RANKS)
    submitted = Jobs(slurm, until, cluster.stage(slurm, script))
    for name, (options, command) in JOBS.items():
        submitted.submit(name, f"--exclude=node3,node4 {options}", command)
    until(lambda: all(submitted.log(name).count("start") == 2 for name in ENDED_FROM_OUTSIDE))
    cluster.capture(slurm, ["scancel", submitted.numbers["cancelled"]])
    submitted.run_out_of_time("timeout")
    yield submitted
    cluster.capture(slurm, ["scancel", f"--user={cluster.USER}"], user=None)
    cluster.faults.heal(slurm)
    until(lambda: set(cluster.node_states(slurm).values()) == {"idle"})


@pytest.fixture(scope="module")
def dead(jobs: Jobs) -> None:
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
    alone = [jobs.verify(element).returncode for element in (f"{number}_1", f"{number}_2", f"{number}_3", raw)]
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
        ("timeout", "TIMEOUT 0:0, 2 nodes (node[1-2]), elapsed 00:", "ask for more with --time"),
    ],
)
def test_a_bad_job(jobs, dead, until, name, sentence, hint):
    """Each way in which a real job goes wrong has a sentence and a hint of its own."""
    if name == "out-of-memory":
        assert jobs.state.plugins["constrain"], "this machine has no cgroup version 1: no memory limits"
    if name == "node-fail":  # accounting never hears of the end of its step
        until(lambda: "NODE_FAIL" in jobs.verify(jobs.numbers[name]).stdout)
        done = jobs.verify(jobs.numbers[name])
    else:
        done = jobs.verify(jobs.ended(name))

    assert done.returncode == 1, done.stdout
    lines = done.stdout.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("FAILED"))
    assert sentence in lines[first]
    assert "next: " in lines[first + 1]
    assert hint in lines[first + 1]
