"""The gloo guide on the real Slurm: the two helpers, the commands of the page, slow nodes, and the entries.

`pytest tests/cluster/test_gloo_ddp.py --record` writes the recordings of the entries anew.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.published import programs_of, stage, submit_all

from recordings.comparing import Mask
from srunbook import cluster
from srunbook.cluster import State, faults

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "slurm" / "gloo_ddp" / "ddp_2node_cpu.sbatch"
PROGRAMS = programs_of(SCRIPT)
HELPERS = [ROOT / "scripts" / name for name in ("run_multinode.sh", "verify_multinode.sh")]
MASKS = (
    Mask(r"\b[0-9a-f]{12}\b", "<hash>", "sums over a network round in the order of arrival"),
    Mask(r"\bnode(\[[\d,-]+\]|\d+)", "<nodes>", "Slurm takes whichever nodes are idle"),
    Mask(r"\d[\d.:]*(e-?\d+)?", "<n>", "ids, sizes and times differ, and processors round in different ways"),
)
FAILURES = ROOT / "examples" / "failures"
PAGE = ROOT / "docs" / "guides" / "gloo-ddp" / "full.md"


@pytest.fixture
def folder(slurm: State) -> str:
    """Make a folder of a user with the files of the guide in it."""
    path = stage(slurm, SCRIPT, extra=HELPERS)
    for helper in HELPERS:
        (slurm.folder / path.lstrip("/") / helper.name).chmod(0o644)  # as a browser saves it
    return path


def console(slurm: State, folder: str, command: str) -> tuple[int, str]:
    """Type a command in a folder; return its status and what it said."""
    result = cluster.capture(slurm, ["bash", "-c", command], folder=folder)
    return result.returncode, result.stdout + result.stderr


# The helpers ---------------------------------------------------------------------------------------------------------


def test_page_leads_to_a_verified_job(slurm: State, folder: str, entry: Any) -> None:
    """What the page says runs a job and waits for it, and proves that all is well, by its number and by its folder."""
    text = PAGE.read_text(encoding="utf-8").split("(gloo-ddp-helper)=")[1]
    commands = re.findall(r"^```console\n\$ (bash (?:run|verify)_multinode\.sh .*)\n```$", text, re.MULTILINE)
    (run,) = (command for command in commands if "--wait" in command)
    by_number, by_folder = (command for command in commands if command.endswith("17"))
    status, said = console(slurm, folder, run)
    job = re.findall(r"^job: +(\d+)$", said, re.MULTILINE)[0]
    here = slurm.folder / folder.lstrip("/")
    results = here / "results" / f"ddp_cpu_{job}"

    assert status == 0, said
    assert f"next:    bash verify_multinode.sh {job}" in said
    for command in (by_number, by_folder):
        proven, report = console(slurm, folder, command.replace("17", job))
        assert proven == 0, report
        if command == by_number:
            entry(HELPERS[1], command.replace("17", job), report, ["."], masks=MASKS)
    summary = (results / "sacct_summary.txt").read_text().splitlines()
    assert summary[0] == "JobID|JobIDRaw|State|ExitCode|NNodes|NTasks|Elapsed|NodeList|Partition|End"
    assert summary[1].startswith(f"{job}|{job}|COMPLETED|0:0|2|")
    assert "| parameters | passed | " in (results / "EXECUTION_SUMMARY.md").read_text()
    assert {path.name for path in results.iterdir()} >= {
        *("metrics.csv", "timings.csv", "sacct_summary.txt", "checkpoint_latest.pth", "EXECUTION_SUMMARY.md"),
        *("rank_0.log", "rank_1.log"),
    }
    for kind in ("out", "err"):
        assert (here / "results" / f"ddp_cpu_{job}.{kind}").read_bytes() == (
            here / f"ddp_cpu_{job}.{kind}"
        ).read_bytes()


def test_slurm_itself_refuses(slurm: State, folder: str) -> None:
    """The message of Slurm about an unknown partition or account is passed on, and no results are begun."""
    partition = console(slurm, folder, "bash run_multinode.sh --partition gpu-node")
    account = console(slurm, folder, "bash run_multinode.sh --account nobody")

    assert partition[0] == account[0] == 1
    assert "invalid partition specified: gpu-node" in partition[1]
    assert re.search(r"[Ii]nvalid account", account[1])
    assert not list((slurm.folder / folder.lstrip("/") / "results").glob("ddp_cpu_*"))


def test_status_of_the_job_is_that_of_the_helper(slurm: State, folder: str) -> None:
    """A training that fails ends the helper with the job's status, after accounting was written whole."""
    status, said = console(slurm, folder, "bash run_multinode.sh --wait -- --learning-rate=-1")
    job = re.findall(r"^job: +(\d+)$", said, re.MULTILINE)[0]
    summary = (slurm.folder / folder.lstrip("/") / "results" / f"ddp_cpu_{job}" / "sacct_summary.txt").read_text()
    errors = (slurm.folder / folder.lstrip("/") / f"ddp_cpu_{job}.err").read_text()

    assert status == 2, said
    assert f"{job}|{job}|FAILED|2:0|" in summary
    assert errors.count("error: --learning-rate -1.0: give more than 0") == 1


# The entries ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def loopback(slurm: State) -> Iterator[None]:
    """Two nodes whose own names lead to 127.0.1.1, as Debian's installer writes it into /etc/hosts."""
    nodes = ("node1", "node2")

    def administer(node: str, command: str) -> None:
        result = cluster.capture(slurm, ["bash", "-euc", command], user=None, machine=node)
        assert result.returncode == 0, result.stderr

    fault = 'name="$(hostname)"; { grep -v " $name$" /etc/hosts; echo "127.0.1.1 $name"; } > /run/hosts; '
    with contextlib.ExitStack() as undo:
        for node in nodes:
            administer(node, fault + "mount --bind /run/hosts /etc/hosts")
            undo.callback(administer, node, "umount /etc/hosts")
        yield


@pytest.mark.usefixtures("loopback")
def test_loopback_host_name(slurm: State, entry: Any) -> None:
    """Nodes whose names lead to 127.0.1.1 do not reach one another by gloo, unless the interface is named."""
    folder = FAILURES / "torch-loopback-hostname"
    scripts = folder / "broken.sbatch", folder / "fixed.sbatch"
    broken, fixed = submit_all(slurm, *scripts, extra=[folder / "join.py"], options=["-w", "node1,node2"])

    essential = (r"node[12] is known here as 127\.0\.1\.1", r"RuntimeError: Gloo connectFullMesh failed with")
    assert broken.state == "FAILED"
    entry(folder / "broken.sbatch", "sbatch broken.sbatch", broken.output, essential, 1, broken.rows)
    assert fixed.state == "COMPLETED", fixed.output
    essential = (r"node[12] is known here as 127\.0\.1\.1", r"the sum is 3")
    entry(folder / "fixed.sbatch", "sbatch fixed.sbatch", fixed.output, essential, 0, fixed.rows)


@pytest.mark.full  # it waits for a node with a twentieth of a CPU, and the other has to be faster on a busy machine
def test_slow_node_is_named(healed: State, as_user: Any, until: Any, entry: Any) -> None:
    """A node that gets a twentieth of a CPU from the second epoch on is named from the timings, and no other."""
    script = FAILURES / "gloo-slow-node" / "broken.sbatch"
    folder = cluster.stage(healed, script, extra=PROGRAMS)
    job = as_user("sbatch", "--parsable", "-w", "node1,node2", f"--chdir={folder}", f"{folder}/{script.name}").strip()
    log = healed.folder / folder.lstrip("/") / "results" / job / "rank_0.log"
    until(lambda: log.exists() and "epoch 1/6" in log.read_text())
    faults.slow_node(healed, "node2", 0.05)
    ended = cluster.await_job(healed, job)

    assert re.findall(r"^slow: rank (\d) on (\S+),", ended.output, re.MULTILINE) == [("1", "node2")], ended.output
    entry(script, "sbatch broken.sbatch", ended.output, (r"^slow: rank 1 on node2, ", r"^rank  host"), 1, ended.rows)


def test_completed_without_metrics(slurm: State, entry: Any) -> None:
    """A script without `set -e` is COMPLETED after its training failed; with it, the job has the training's status."""
    folder = FAILURES / "gloo-no-metrics"
    scripts = folder / "broken.sbatch", folder / "fixed.sbatch"
    broken, fixed = submit_all(slurm, *scripts, extra=PROGRAMS, options=["-w", "node1,node2"])

    assert (broken.state, broken.exit_status) == ("COMPLETED", 0)
    essential = (r"error: \[Errno 13\] Permission denied: '/results'", r"^training finished")
    entry(folder / "broken.sbatch", "sbatch broken.sbatch", broken.output, essential, 0, broken.rows)
    assert fixed.state == "COMPLETED", fixed.output
    entry(folder / "fixed.sbatch", "sbatch fixed.sbatch", fixed.output, (r"^metrics\.csv",), 0, fixed.rows)


def test_pending_job(healed: State, as_user: Any, until: Any, entry: Any) -> None:
    """A job that needs a node that is drained waits, and squeue says for what, once the scheduler has looked twice."""
    script = FAILURES / "gloo-job-pending" / "broken.sbatch"
    folder = cluster.stage(healed, script)
    faults.drain(healed, "node4")
    job = as_user("sbatch", "--parsable", f"--chdir={folder}", f"{folder}/broken.sbatch").strip()
    command = ["squeue", f"--jobs={job}", "--format=%i %j %T %R"]
    shown = until(lambda: said if "(Nodes required" in (said := as_user(*command)) else None)
    as_user("scancel", job)
    rows = cluster.await_job(healed, job).rows

    entry(script, 'squeue --me --format="%i %j %T %R"', shown, (r"PENDING \(Nodes required",), 0, rows)


def test_unknown_partition(slurm: State, entry: Any) -> None:
    """A partition that the cluster does not have is refused by sbatch, and no job comes to be."""
    script = FAILURES / "gloo-unknown-partition" / "broken.sh"
    status, said = console(slurm, cluster.stage(slurm, script), "bash broken.sh")

    assert status == 1
    entry(script, "bash broken.sh", said, (r"invalid partition specified: gpu-node",), status)
