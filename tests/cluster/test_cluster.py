"""What the cluster is: nodes of their own, ordinary users, accounting, limits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from srunbook import cluster
from srunbook.cli.cluster import command as cli
from srunbook.cluster import Specification


def test_nodes_have_names_and_addresses_of_their_own(as_user):
    """Each node answers with its own name and its own address."""
    lines = as_user("srun", "-N4", "bash", "-c", "echo $(hostname) $SLURMD_NODENAME $(hostname -I)").splitlines()

    assert sorted(lines) == [f"node{index} node{index} 10.77.0.{index}" for index in range(1, 5)]


def test_nodes_have_processes_of_their_own(as_user):
    """A job sees its own processes and those of its node, and none of the host or of another node."""
    seen = as_user("srun", "-N2", "-w", "node1,node2", "bash", "-c", "echo $(ps -C slurmd -o pid= | wc -l)").split()

    assert seen == ["1", "1"]


def test_no_job_runs_as_root(as_user):
    """A job's processes belong to the ordinary user who submitted it."""
    assert as_user("srun", "id", "-un").strip() == cluster.USER
    assert as_user("srun", "id", "-un", user=cluster.SECOND_USER).strip() == cluster.SECOND_USER


def test_a_second_user_sees_nothing_of_the_first(slurm, as_user):
    """Homes are closed: what a job of one user wrote, the other cannot read."""
    as_user("srun", "bash", "-c", "echo private > ~/private.txt")
    path = f"/home/{cluster.USER}/private.txt"
    other = cluster.capture(slurm, ["cat", path], user=cluster.SECOND_USER)

    assert as_user("cat", path) == "private\n"
    assert other.returncode != 0
    assert "Permission denied" in other.stderr


def test_accounting_shows_job_and_steps(slurm, as_user):
    """In sacct a job, its batch step and its srun step stand, each with its state."""
    job = as_user("sbatch", "--parsable", "--wait", "--output=/dev/null", "--wrap=srun true").strip()
    rows = cluster.account(slurm, job)

    assert [row["JobID"] for row in rows] == [job, f"{job}.batch", f"{job}.0"]
    assert {(row["State"], row["ExitCode"]) for row in rows} == {("COMPLETED", "0:0")}


def test_a_bar_in_a_job_name_is_no_column(slurm, tmp_path):
    """A job named `a|b` has its name, its state and its status in the columns where they belong."""
    script = tmp_path / "bar.sbatch"
    script.write_text("#!/bin/bash\n#SBATCH --job-name=a|b\nexit 3\n")
    job = cluster.submit(slurm, script)
    row = job.rows[0]

    assert (row["JobName"], row["Partition"], row["State"], row["ExitCode"]) == ("a|b", "batch", "FAILED", "3:0")
    assert job.exit_status == 3


def test_a_failed_job_is_accounted_as_failed(slurm, as_user, tmp_path):
    """A job that ends with status 3 is FAILED with 3:0, and `submit` ends with 3."""
    script = tmp_path / "three.sbatch"
    script.write_text("#!/bin/bash\necho before the end\nexit 3\n")
    job = cluster.submit(slurm, script)

    assert (job.state, job.rows[0]["ExitCode"], job.exit_status) == ("FAILED", "3:0", 3)
    assert job.output == "before the end\n"


def test_a_task_over_its_memory_ends_out_of_memory(slurm, as_user, tmp_path):
    """A task that takes more memory than it asked for is killed, and accounted OUT_OF_MEMORY."""
    script = tmp_path / "greedy.sbatch"
    script.write_text("#!/bin/bash\n#SBATCH --mem=100M\nsrun python3 -c 'print(len(bytearray(300 * 2**20)))'\n")
    job = cluster.submit(slurm, script)

    assert slurm.plugins["constrain"], "this machine has no cgroup version 1, so memory limits cannot be enforced"
    assert job.rows[-1] | {"JobID": f"{job.identity}.0", "State": "OUT_OF_MEMORY"} == job.rows[-1]
    assert "Out Of Memory" in job.output


SIGNALS = """\
#!/bin/bash
cat >child.sh <<'END'
trap 'echo child got it' USR1
touch child-is-ready
until [ -e all-was-said ]; do sleep 0.1; done
END
cat >task.sh <<'END'
trap 'echo task got it' USR1
bash child.sh &
wait
wait
END
srun bash task.sh
"""


def test_signals_reach_only_the_task(slurm, as_user, until, tmp_path):
    """Under proctrack/cgroup a signal of scancel reaches the process of the task and not its children."""
    assert slurm.plugins["proctrack"] == "proctrack/cgroup", "this machine has no cgroup version 1"
    script = tmp_path / "signals.sbatch"
    script.write_text(SIGNALS)
    folder = cluster.stage(slurm, script)
    job = as_user("sbatch", "--parsable", f"--chdir={folder}", f"{folder}/signals.sbatch").strip()
    there = slurm.folder / folder.lstrip("/")
    until((there / "child-is-ready").exists)
    as_user("scancel", "--signal=USR1", f"{job}.0")
    until(lambda: "task got it" in (there / f"slurm-{job}.out").read_text())
    (there / "all-was-said").touch()  # a child that had got it, too, would say so before it looks for this file
    ended = cluster.await_job(slurm, job)

    assert "task got it" in ended.output
    assert "child got it" not in ended.output


def test_ordinary_users_import_the_frameworks(as_user):
    """An ordinary user finds jax and torch on a node, in the environment of the module python, and imports srunbook."""
    code = "import srunbook; from importlib.metadata import version; print(version('jax'), version('torch'))"
    script = f'module load python && srun python -c "{code}"'
    jax, torch = as_user("bash", "-lc", script).split()

    assert (jax, torch.split("+")[0]) == ("0.10.2", "2.13.0")


def test_the_checkout_is_seen_and_cannot_be_changed(slurm, as_user):
    """Every node sees the checkout, read-only."""
    listing = as_user("srun", "-N4", "ls", "/opt/srunbook/slurm")
    written = cluster.capture(slurm, ["touch", "/opt/srunbook/x"], user=None, machine="node1")

    assert listing.count("jax_multinode") == 4
    assert "Read-only file system" in written.stderr


@pytest.mark.parametrize(
    ("options", "devices"),
    [
        (["-N1", "-n1"], ["1"]),
        (["-N1", "--ntasks-per-node=4", "--gpus-per-node=4"], ["1"] * 4),
        (["-N2", "--ntasks-per-node=1", "--gpus-per-node=2"], ["2"] * 2),
        (["-N2", "-n3", "--gpus-per-node=4"], ["2", "2", "4"]),
    ],
    ids=["no-gpus", "one-each", "two-each", "unequal"],
)
def test_jax_has_as_many_devices_as_the_task_has_gpus(as_user, options, devices):
    """The TaskProlog gives each task the GPUs of its node divided by the tasks on it, 1 without GPUs."""
    out = as_user("srun", *options, "bash", "-c", "echo $JAX_NUM_CPU_DEVICES")

    assert sorted(out.split()) == devices


def test_the_task_prolog_leaves_a_set_value_alone(as_user):
    """A job that sets JAX_NUM_CPU_DEVICES or OMP_WAIT_POLICY itself keeps its value."""
    show = "srun bash -c 'echo $JAX_NUM_CPU_DEVICES $OMP_WAIT_POLICY'"

    assert as_user("bash", "-c", f"JAX_NUM_CPU_DEVICES=7 {show}").split() == ["7", "passive"]
    assert as_user("bash", "-c", f"OMP_WAIT_POLICY=active {show}").split() == ["1", "active"]


def test_gpus_are_scheduled_as_on_a_site(as_user):
    """GPUs are asked for by number, by type and by feature, and counted out."""
    options = ["--gres=gpu:a100:2", "--constraint=a100"]

    assert as_user("srun", *options, "bash", "-c", "echo $CUDA_VISIBLE_DEVICES $SLURM_GPUS_ON_NODE").strip() == "0,1 2"


def test_modules_are_those_of_the_guides(as_user):
    """The modules that the guides load exist, and name the image."""
    assert as_user("bash", "-lc", "module load dl && module load jax/23.10-sif && echo $JAX_IMAGE") == (
        "/opt/images/jax.sif\n"
    )


def test_nodes_reach_nothing_outside(slurm):
    """A node has no way out of the cluster's own network."""
    routes = cluster.capture(slurm, ["ip", "route"], user=None, machine="node1").stdout.splitlines()

    assert [line.split()[0] for line in routes] == ["10.77.0.0/16"]


def test_nothing_of_the_host_is_in_a_job(as_user):
    """No variable of the shell that started the cluster reaches a job."""
    assert "PYTEST" not in as_user("srun", "env")


def command(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; from srunbook.cli import main; main(prog_name='srunbook')"
    program = [sys.executable, "-c", code, "cluster", *arguments]
    return subprocess.run(program, env={**os.environ, **environ}, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--slurm", "19.05"], "unknown generation of Slurm '19.05'"),
        (["--nodes", "0"], "--nodes: nodes is 0. The nodes: a number from 1 to 256"),
        (["--nodes", "257"], "nodes is 257"),
        (["--memory", "17T"], "memory '17T': allowed are 512M to 16T"),
        (["--memory", "much"], "as in --memory 64G"),
        (["--cpus", "0"], "cpus is 0"),
        (["--gpus-per-node", "-1"], "gpus_per_node is -1"),
        (["--features", "A 100"], "feature 'A 100'"),
        (["--cpu-quota", "0"], "cpu_quota is 0"),
        (["--link", "fast"], "link 'fast'"),
        (["--name", "../x"], "name '../x'"),
    ],
)
def test_bad_input_is_refused(tmp_path, options, said):
    """Bad input ends with status 2 and a sentence, and leaves nothing."""
    result = CliRunner(env={"XDG_CACHE_HOME": str(tmp_path)}).invoke(cli, ["up", *options])

    assert result.exit_code == 2
    assert said in result.stderr
    assert not list(tmp_path.rglob("*"))


def test_a_missing_script_is_refused(slurm):
    """`submit` of a script that is not there says so, with status 2."""
    result = command("submit", "--name", slurm.specification.name, "slurm/none.sbatch")

    assert result.returncode == 2
    assert "no such script: slurm/none.sbatch" in result.stderr


def test_a_cluster_that_is_not_up_is_named():
    """Commands for a cluster that is not up say how to start it."""
    result = command("status", "--name", "nowhere")

    assert result.returncode == 1
    assert "srunbook cluster up --name nowhere" in result.stderr


def test_other_settings_need_another_cluster(slurm):
    """`up` for a cluster that is up with other settings changes nothing and says so."""
    with pytest.raises(cluster.ClusterError, match="is up with other settings"):
        cluster.up(Specification(name=slurm.specification.name, slurm=slurm.specification.slurm, nodes=3))

    assert cluster.up(slurm.specification).identity == slurm.identity


def test_without_root_it_says_so(slurm):
    """An ordinary user who starts a cluster is told what is missing."""
    code = "from srunbook.cluster import *\ntry: up(Specification())\nexcept ClusterError as e: print(e)"
    result = cluster.capture(slurm, [sys.executable, "-c", code])

    assert "needs root" in result.stdout


def test_a_full_cache_folder_is_told_before_anything_is_made(monkeypatch):
    """Without room for a root nothing is begun."""
    from srunbook.cluster import _host

    monkeypatch.setattr(_host.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 2**20})())

    with pytest.raises(cluster.ClusterError, match="GiB free"):
        cluster.up(Specification(name="full"))

    assert cluster.read_state("full") is None


def test_an_interrupted_root_is_not_taken_for_a_finished_one(tmp_path, monkeypatch):
    """A tree without the manifest that is written last does not count."""
    from srunbook.cluster import _roots

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = _roots.folder_of("bookworm")
    (folder / "root" / "etc").mkdir(parents=True)

    assert _roots.find_root("bookworm") is None
    root = {"path": "x", "suite": "bookworm", "slurm": "22.05.8", "date": "x", "recipe": "x", "versions": {}}
    (folder / "manifest.json").write_text(json.dumps(root))

    assert _roots.find_root("bookworm") is not None


def test_a_generation_that_moved_on_is_said_to_be_gone(monkeypatch):
    """Once sid holds another Slurm, 26.05 fails with a sentence and `newest` goes on."""
    from srunbook.cluster import _roots

    later = _roots.Root("x", "sid", "27.05.1", "x", "x", {})
    monkeypatch.setattr(_roots, "find_root", lambda suite, more: later)

    with pytest.raises(cluster.ClusterError, match=r"no longer holds Slurm 26\.05: its packages are 27\.05\.1"):
        _roots.ensure_root("26.05")
    assert _roots.ensure_root("newest") is later


def test_a_mirror_is_found_in_either_form(tmp_path):
    """The mirror of the machine is read from either form of apt's configuration."""
    from srunbook.cluster._roots import mirror_of_host

    (tmp_path / "sources.list.d").mkdir()
    with pytest.raises(cluster.ClusterError, match="--mirror"):
        mirror_of_host(tmp_path)
    (tmp_path / "sources.list").write_text("# none\ndeb [arch=amd64] http://one.example/debian bookworm main\n")
    assert mirror_of_host(tmp_path) == "http://one.example/debian"
    (tmp_path / "sources.list").unlink()
    deb822 = Path(tmp_path / "sources.list.d" / "debian.sources")
    deb822.write_text("Types: deb\nURIs: http://two.example/debian\nSuites: bookworm\n")

    assert mirror_of_host(tmp_path) == "http://two.example/debian"
