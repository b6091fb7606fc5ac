"""The published job scripts: on a site that is not like ours, and one script with four environments."""

from __future__ import annotations

import os
import re
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from support.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted((ROOT / "slurm").rglob("*.sbatch"))
SOURCING = [path for path in SCRIPTS if "\nsource " in path.read_text(encoding="utf-8")]
"""Those whose environment doesn't come from a module."""
STARTING = [path for path in SCRIPTS if "\nsrun " in path.read_text(encoding="utf-8")]
"""Those that start ranks."""

UNSET = 'x="$LD_LIBRARY_PATH"'
"""What code of a site may do: read a variable that nobody has set."""

STAND_INS = {
    "scontrol": "echo node1",
    "srun": 'echo "srun $*" >>"$ASKED"',
    "sbcast": ":",
    "python": "echo node1 ok",  # what preflight.py says; the scaling scripts draw a table at the end
}


class Site:
    """A site whose module command and environments read an unset variable.

    Args:
        folder: Where it and the job are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.asked = folder, folder / "asked"
        for name, text in STAND_INS.items():
            self.stand_in(name, text)
        (folder / "shards").mkdir()  # as if pack.py had run
        for place in ("jax-env/bin", "torch-env/bin", "miniforge3/bin"):
            activate = folder / "home" / place / "activate"
            activate.parent.mkdir(parents=True)
            activate.write_text(f"{UNSET}\n", encoding="utf-8")

    def stand_in(self, name: str, text: str) -> None:
        """Write a command in bash that jobs find before the real one."""
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/bash\n{text}\n", encoding="utf-8")
        path.chmod(0o755)

    def run(self, script: Path) -> subprocess.CompletedProcess[str]:
        """Run a job script as slurmd does: with bash, and with the variables of a job."""
        environ = {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "HOME": str(self.folder / "home"),
            "ASKED": str(self.asked),
            "TMPDIR": str(self.folder),
            "BASH_FUNC_module%%": f"() {{ {UNSET}; JAX_IMAGE=/opt/jax.sif; }}",
            "SLURM_JOB_ID": "17",
            "SLURM_JOB_NAME": "job",
            "SLURM_JOB_NODELIST": "node1",
            "SLURM_JOB_NUM_NODES": "1",
            "SLURM_CPUS_PER_TASK": "1",
            "SLURM_GPUS_ON_NODE": "2",
            "SLURM_NTASKS": "2",
            "SLURM_NTASKS_PER_NODE": "2",
        }
        if "#SBATCH --array=" in script.read_text(encoding="utf-8"):
            environ["SLURM_ARRAY_TASK_ID"] = "3"
        return subprocess.run(
            ["bash", script], cwd=self.folder, env=environ, capture_output=True, text=True, check=False
        )

    @property
    def sruns(self) -> list[str]:
        """Return how srun was called."""
        return self.asked.read_text(encoding="utf-8").splitlines() if self.asked.exists() else []


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.mark.parametrize("script", STARTING, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_script_runs_at_a_strange_site(script: Path, site: Site) -> None:
    """Site code that reads an unset variable ends no job, and all ranks may finish where the site sets WaitTime."""
    done = site.run(script)
    ranks = [line for line in site.sruns if "--kill-on-bad-exit=1" in line]

    assert done.returncode == 0, done.stderr
    assert ranks, "the script starts no ranks"
    assert all("--wait=0" in line for line in ranks)


@pytest.mark.parametrize("script", SOURCING, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_missing_environment_ends_the_job(script: Path, site: Site) -> None:
    """A script whose environment is missing starts no ranks and says in one line what is missing."""
    for activate in (site.folder / "home").glob("*/bin/activate"):
        activate.unlink()
    done = site.run(script)

    assert done.returncode != 0
    assert not [line for line in site.sruns if "--kill-on-bad-exit=1" in line]
    assert len(done.stderr.splitlines()) == 1
    assert "No such file or directory" in done.stderr


REQUEUEING = sorted((ROOT / "slurm").rglob("requeue*.sbatch"))


@pytest.mark.parametrize("script", REQUEUEING, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_starts_without_progress_end(script: Path, site: Site) -> None:
    """Three starts in a row that save nothing are the last ones; a save in between counts as progress."""
    saved = site.folder / re.sub(r"\$\w+", "job", re.search(r'saved="(.*?)"', script.read_text())[1])
    statuses = [site.run(script).returncode for _ in range(3)]
    saved.parent.mkdir(exist_ok=True)
    saved.mkdir()
    os.utime(saved, (time.time() + 60,) * 2)  # newer than the last start on any clock
    statuses.append(site.run(script).returncode)
    os.utime(saved, (0, 0))
    statuses += [site.run(script).returncode for _ in range(2)]
    done = site.run(script)

    assert statuses == [0] * 6
    assert done.returncode == 1
    assert f"did not save {saved.relative_to(site.folder)}" in done.stderr
    assert len(site.sruns) == 6


@pytest.mark.parametrize(
    "script", [path for path in REQUEUEING if path.stem == "requeue_container"], ids=lambda path: path.parent.name
)
def test_signal_to_the_script_reaches_the_program(script: Path, site: Site) -> None:
    """A script that gets Slurm's signal passes it on, waits until the program has ended, and requeues its job."""
    told = 'trap "echo ended >>$ASKED; exit 1" USR1'  # torchrun ends with 1 after a signal
    site.stand_in("srun", f"echo $$ >pid; {told}; kill -USR1 $PPID; for _ in {{1..500}}; do sleep 0.02; done")
    site.stand_in("scancel", 'echo "scancel $*" >>"$ASKED"; kill -USR1 "$(<pid)"')
    site.stand_in("scontrol", '[[ $1 != requeue ]] || echo "scontrol $*" >>"$ASKED"; echo node1')
    done = site.run(script)

    assert done.stderr == ""
    assert site.sruns == ["scancel --signal=USR1 17", "ended", "scontrol requeue 17"]


SIGNALLED = [path for path in SCRIPTS if re.search("#SBATCH --signal=(B:)?USR1", path.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("script", SIGNALLED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_early_signal_is_ignored(script: Path, site: Site) -> None:
    """A signal that reaches a node before the program or torchrun listens to it ends nothing."""
    # A step that waits for the end of the job would wait for ever.
    # A task's other processes end with it.
    ends = 'set -m; "$@" & wait $!; status=$?; kill -KILL -- -$! 2>/dev/null; exit $status'
    site.stand_in("srun", f"[[ $1 != --overlap ]] || exit 0; while [[ $1 == -* ]]; do shift; done; {ends}")
    for command in ("torchrun", "python"):
        site.stand_in(command, "[[ $2 != judge ]] || exec echo node1 ok; kill -USR1 $$; echo listening")
    site.stand_in("singularity", 'shift 3; exec "$@"')  # run --nv IMAGE
    done = site.run(script)

    assert done.returncode == 0, done.stderr
    assert "listening" in done.stdout


def test_every_rank_has_a_thread(site: Site) -> None:
    """A job with fewer cores than GPUs gets one thread for each rank, not none."""
    site.stand_in("srun", 'echo "$OMP_NUM_THREADS" >>"$ASKED"')
    for script in SCRIPTS:
        if "OMP_NUM_THREADS=$((" in script.read_text(encoding="utf-8"):
            assert site.run(script).returncode == 0
            (site.folder / "17.starts").unlink(missing_ok=True)  # the scripts give up after three in a row

    assert set(site.sruns) == {"1"}


PORT = "25017"
TESTS = {
    path: lines
    for path in sorted((ROOT / "docs").rglob("network.*"))
    if (lines := re.findall(rf"^\$ (srun .*{PORT}.*)$", path.read_text(encoding="utf-8"), re.MULTILINE))
}
"""The pages that open a port on one node and try it from another, and the lines that do so."""


@pytest.mark.parametrize("page", TESTS, ids=lambda path: path.parent.name)
def test_the_test_of_a_firewall_shows_no_file(page: Path, site: Site) -> None:
    """The port that a page opens can be reached as the page says, and shows nobody the reader's folder."""
    site.stand_in("srun", 'while [[ $1 == -* ]]; do shift; done; exec "$@"')
    port, environ = str(free_port()), {"PATH": f"{site.folder / 'bin'}:{os.environ['PATH']}"}
    opens, *tries = [line.replace(PORT, port).replace("/node1/", "/localhost/") for line in TESTS[page]]
    typed = ["bash", "-c", f"exec {opens.removesuffix(' &')}"]
    server = subprocess.Popen(typed, cwd=site.folder, env=environ, stderr=subprocess.DEVNULL)
    try:
        while subprocess.run(["bash", "-c", f"</dev/tcp/localhost/{port}"], capture_output=True).returncode:
            assert server.poll() is None
            time.sleep(0.05)
        for line in (line for line in tries if "/dev/tcp/" in line):
            assert subprocess.check_output(["bash", "-c", line], env=environ, text=True) == "open\n"
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"http://localhost:{port}/")
    finally:
        server.terminate()  # timeout passes it on
        server.wait()


VARIANTS = {
    "torchrun/ddp_conda": ("torchrun/ddp", ['source "$HOME/miniforge3/bin/activate" torch-env'], ""),
    "torchrun/ddp_modules": ("torchrun/ddp", ["module purge", "module load pytorch/2.13"], ""),
    "jax_multinode/data_parallel_container": (
        "jax_multinode/data_parallel",
        ["module load dl jax/23.10-sif", 'image="$JAX_IMAGE"', "export PYTHONNOUSERSITE=1"],
        'singularity run --nv "$image" ',
    ),
}
"""Each variant with the script it changes, its lines in place of the environment, and what it puts before python."""


def commands(name: str) -> list[str]:
    """Return the directives and commands of a job script; what follows two spaces and a # is a comment."""
    text = (ROOT / "slurm" / f"{name}.sbatch").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.startswith("#SBATCH") or not line.startswith("#")]
    return [line if line.startswith("#SBATCH") else line.partition("  #")[0].strip() for line in lines]


@pytest.mark.parametrize("name", VARIANTS)
def test_scripts_differ_in_their_environment_alone(name):
    """A variant has other lines before srun, and a container other words after it, as the page says."""
    base, before, container = VARIANTS[name]
    lines = [before if line.startswith("source ") else [line] for line in commands(base)]
    *others, last = [command for group in lines for command in group]

    assert commands(name) == [*others, f"{container}{last}"]


def test_one_folder_leaves_the_library_path() -> None:
    """The line of the page takes one folder out of LD_LIBRARY_PATH, also in a script with `set -eu`."""
    page = (ROOT / "docs" / "troubleshooting" / "nccl-undefined-symbol.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"`(export LD_LIBRARY_PATH=.*?)`", page)
    command = ["bash", "-c", f'set -eu\n{line}\necho "$LD_LIBRARY_PATH"']
    for path, left in {"/a:/the/folder:/b": "/a:/b", "/the/folder/b:/the/folder": "/the/folder/b"}.items():
        environ = {**os.environ, "LD_LIBRARY_PATH": path}
        assert subprocess.check_output(command, env=environ, text=True) == f"{left}\n"
