"""What the cluster is: nodes of their own, ordinary users, accounting, and the command's way in."""

from __future__ import annotations

import fcntl
import json
import os
import select
import struct
import subprocess
import sys
import termios

import pytest
from click.testing import CliRunner
from support.patience import PATIENCE

from srunbook import cluster
from srunbook.cli.cluster import command as cli
from srunbook.cluster import Specification

COMMAND = [sys.executable, "-c", "from srunbook.cli import main; main(prog_name='srunbook')", "cluster"]


def test_each_node_is_a_machine_of_its_own(slurm, as_user, monkeypatch):
    """A node has its own name, address and processes, nothing of the host's environment, and no way out."""
    monkeypatch.setenv("TREASURE", "root's")
    show = "echo $(hostname) $SLURMD_NODENAME $(hostname -I) $(ps -C slurmd -o pid= | wc -l) $(env | grep -c TREASURE)"
    lines = as_user("srun", "-N4", "bash", "-c", show).splitlines()
    routes = cluster.capture(slurm, ["ip", "route"], user=None, machine="node1").stdout.splitlines()

    assert sorted(lines) == [f"node{index} node{index} 10.77.0.{index} 1 0" for index in range(1, 5)]
    assert [line.split()[0] for line in routes] == ["10.77.0.0/16"]


def test_a_failed_job_is_accounted_as_failed(slurm, tmp_path):
    """A job and its steps have rows with their states; `a|b` is one name, and `submit` ends with the job's status."""
    script = tmp_path / "bar.sbatch"
    script.write_text("#!/bin/bash\n#SBATCH --job-name=a|b\necho before the end\nsrun true\nexit 3\n")
    job = cluster.submit(slurm, script)
    found = [(row["JobID"], row["JobName"], row["State"], row["ExitCode"]) for row in job.rows]

    assert found == [
        (job.identity, "a|b", "FAILED", "3:0"),
        (f"{job.identity}.batch", "batch", "FAILED", "3:0"),
        (f"{job.identity}.0", "true", "COMPLETED", "0:0"),
    ]
    assert (job.state, job.exit_status, job.output) == ("FAILED", 3, "before the end\n")


def test_jobs_find_the_modules_of_the_guides(slurm, as_user):
    """A node has the modules and the checkout, which nobody can change."""
    shell = "module load python dl jax/23.10-sif; echo $JAX_IMAGE; python -c 'import srunbook, jax, torch'"
    image = as_user("srun", "bash", "-lc", shell)
    written = cluster.capture(slurm, ["touch", "/opt/srunbook/x"], user=None, machine="node1")

    assert image == "/opt/images/jax.sif\n"
    assert "Read-only file system" in written.stderr


def test_other_settings_need_another_cluster(slurm):
    """`up` for a cluster that is up with other settings changes nothing and says so."""
    with pytest.raises(cluster.ClusterError, match="is up with other settings"):
        cluster.up(Specification(name=slurm.specification.name, slurm=slurm.specification.slurm, nodes=3))

    assert cluster.up(slurm.specification).identity == slurm.identity


def test_without_root_it_says_so(slurm):
    """An ordinary user who starts a cluster is told what is missing."""
    code = "from srunbook.cluster import *\ntry: up(Specification())\nexcept ClusterError as e: print(e)"

    assert "needs root" in cluster.capture(slurm, [sys.executable, "-c", code]).stdout


def test_a_shell_has_this_terminal(slurm):
    """A shell has this terminal with its size and job control, and leaves its modes and its status behind."""
    screen, line = os.openpty()
    fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("4H", 33, 111, 0, 0))
    before = termios.tcgetattr(line)
    command = ["setsid", "--ctty", "--wait", *COMMAND, "exec", "--name", slurm.specification.name, "bash"]
    shell = subprocess.Popen(command, stdin=line, stdout=line, stderr=line)

    def shown(text: bytes) -> None:
        seen = b""
        while text not in seen:
            assert select.select([screen], [], [], PATIENCE)[0], seen
            seen += os.read(screen, 65536)

    shown(b"$ ")
    for typed, answer in (
        (b"stty size\n", b"33 111"),
        (b"bash -c 'echo runs; sleep infinity'\n", b"runs\r\n"),
        (b"\x1a", b"Stopped"),
    ):
        os.write(screen, typed)
        shown(answer)
    os.write(screen, b"exit 3\nexit 3\n")  # the first one warns of the stopped job

    assert (shell.wait(), termios.tcgetattr(line)) == (3, before)
    os.close(screen)
    os.close(line)


def test_a_user_has_no_open_file_and_no_mask_of_root(slurm, tmp_path):
    """A user's process has the three streams and a home, whatever the caller had open."""
    mask, leaked = os.umask(0), os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(leaked, True)
    try:
        said = cluster.capture(slurm, ["bash", "-c", "ls /proc/self/fd | wc -l; pwd; umask"]).stdout
    finally:
        os.umask(mask)
        os.close(leaked)

    assert said.split() == ["4", "/home/alice", "0022"]


def test_root_administers(slurm):
    """`exec --user root` has root's home and may change what users may not; a job has no root."""
    name = ["--name", slurm.specification.name]
    change = "id -un; pwd; scontrol update PartitionName=debug MaxTime=29 && scontrol show partition debug"
    done = subprocess.run(
        [*COMMAND, "exec", *name, "--user", "root", "--", "bash", "-c", change],
        capture_output=True,
        text=True,
        check=False,
    )
    cluster.capture(slurm, ["scontrol", "reconfigure"], user="root")
    refused = CliRunner().invoke(cli, ["submit", *name, "--user", "root", __file__])

    assert done.stdout.splitlines()[:2] == ["root", "/root"]
    assert "MaxTime=00:29:00" in done.stdout
    assert refused.exit_code == 2
    assert "a job belongs to a user of the cluster, which has alice, bob" in refused.stderr


def test_status_for_programs(slurm, healed):
    """`status --json` says of nodes and faults what the lines for people say."""
    cluster.faults.drain(healed, "node4")
    name = ["--name", slurm.specification.name]
    done = CliRunner().invoke(cli, ["status", *name, "--json"])
    lines = CliRunner().invoke(cli, ["status", *name]).stdout.splitlines()
    found = json.loads(done.stdout)

    assert (found["schema"], found["name"], found["users"]) == (1, slurm.specification.name, ["alice", "bob"])
    assert found["faults"] == [{"kind": "drain", "node": "node4"}]
    assert [node["state"] for node in found["nodes"]][3] in ("drain", "drng")
    assert [f"{node['name']} {node['address']} {node['state']}" for node in found["nodes"]] == lines[-4:]
