"""Clusters for tests, and scripts of this repository on them: each worker of a test run has clusters of its own."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from support.programs import expect_abort_at_exit

from srunbook import cluster
from srunbook.cli import _expected
from srunbook.cluster import Bind, FinishedJob, Image, Provision, Specification, State
from srunbook.cluster._provision import IMAGES
from srunbook.cluster._roots import ensure_image, ensure_root

ROOT = Path(__file__).resolve().parents[2]

PLACE = Path("/opt/srunbook")
"""Where jobs see the repository, besides its own path, which an editable installation points to."""

JAX_IMAGE = Image(
    "jax",
    ROOT / "examples" / "jax_multinode" / "jax.def",
    {"VARIANT": "cpu", "MIRROR": "{mirror}", "INDEX": "{index}"},
)


def provision() -> Provision:
    """Return what the command gives to a cluster, with this repository and the image of the JAX guide."""
    return replace(_expected.provision(), binds=(Bind(ROOT, PLACE), Bind(ROOT, ROOT)), images=(JAX_IMAGE,))


def programs_of(script: Path) -> list[Path]:
    """Return the programs and tables of the guide of a published script, which a reader has beside it."""
    if script.parent.parent != ROOT / "slurm":
        return []
    folder = ROOT / "examples" / script.parent.name
    patterns = ("*.py", "full/*.py", "*.csv", "Snakefile")
    return sorted(path for name in patterns for path in folder.glob(name) if path.name[:5] != "plot_")


def cluster_name(config: pytest.Config, *parts: str) -> str:
    """Return a name that no other worker and no other test run gives to a cluster.

    Args:
        config: Of the test run; its option `--cluster` is what the name begins with.
        parts: What the name ends with, such as a generation of Slurm.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    return "-".join(filter(None, [str(config.getoption("--cluster")), worker, *parts])).replace(".", "-")


def boot(specification: Specification) -> State:
    """Bring a cluster up as the command does, with this checkout and its image."""
    return cluster.up(specification, provision(), say=print)


def give_torch_image(state: State) -> None:
    """Build the image of the torchrun guide once, with Lightning, and link it into every home of a cluster.

    If this machine's pip finds wheels in a folder, PyTorch comes from there, in the version that runs here: the index
    may only have the one for CUDA, which is ten times as large.
    """
    asked = [sys.executable, "-m", "pip", "config", "get", "global.find-links"]
    wheels = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    packages = f"torch==2.13.0 lightning=={importlib.metadata.version('lightning')}"
    arguments = {"MIRROR": "{mirror}", "INDEX": "{index}", "TORCH": packages}
    if wheels:  # they are for the Python of Debian 12
        arguments |= {"DEBIAN": "bookworm", "TORCH": f"--find-links=/mnt {packages}"}
    definition = ROOT / "examples" / "torchrun" / "torch.def"
    image = Image("torch", definition, arguments, Path(wheels) if wheels else None)
    ensure_image(ensure_root(cluster.NEWEST), image, say=print)
    for user in state.specification.user_ids:
        link = state.folder / "home" / user / "torch.sif"
        link.unlink(missing_ok=True)
        link.symlink_to(IMAGES / "torch.sif")


def contained_in(script: Path) -> str:
    """Return the name of the container engine that a job script starts its tasks with, or nothing."""
    text = script.read_text(encoding="utf-8")
    words = {"singularity run": "apptainer", "--container-image": "pyxis", "ch-run": "charliecloud"}
    return next((engine for word, engine in words.items() if word in text), "")


def give_squashfs(state: State, name: str) -> None:
    """Give every user of a cluster the file system in an image of Apptainer, which other engines read, as NAME.sqsh."""
    file = state.folder / "home" / f"{name}.sqsh"
    if not file.exists():
        listed = cluster.capture(state, ["apptainer", "sif", "list", f"{IMAGES}/{name}.sif"]).stdout
        (number,) = re.findall(r"^(\d+) .*FS \(Squashfs", listed, re.MULTILINE)
        dump = f"apptainer sif dump {number} {IMAGES}/{name}.sif >/home/{name}.sqsh"
        cluster.capture(state, ["sh", "-c", dump], user=None).check_returncode()
    for user in state.specification.user_ids:
        link = state.folder / "home" / user / f"{name}.sqsh"
        link.unlink(missing_ok=True)
        link.symlink_to(f"/home/{name}.sqsh")


def give_pyxis(state: State) -> None:
    """Compile the stand-in for pyxis in a cluster of the newest generation; Slurm uses it from then on."""
    source = PLACE / "tests" / "support" / "pyxis_stand_in"
    build = f"cd /home && tcc -c {source}/pyxis.c && ld -shared -z noexecstack -o pyxis.so pyxis.o"
    cluster.capture(state, ["sh", "-c", build], user=None).check_returncode()
    configuration = state.folder / "etc" / "slurm" / "plugstack.conf"
    configuration.write_text(f"required /home/pyxis.so {source}/enter.sh\n", encoding="utf-8")


def give_engine(state: State, script: Path) -> None:
    """Give a cluster what a script with a container needs besides Apptainer and the image of the JAX guide."""
    name = "jax" if "jax" in script.parent.name else "torch"
    if name == "torch":
        give_torch_image(state)
    if contained_in(script) != "apptainer":
        give_squashfs(state, name)
    if contained_in(script) == "pyxis":
        give_pyxis(state)


def stage(state: State, script: Path, *, extra: Sequence[Path] = ()) -> str:
    """Copy a script and the programs of its guide into a new folder; return its path on the cluster."""
    return cluster.stage(state, script, extra=[*programs_of(script), *extra])


MORE_TIME = "--time=60"
"""Minutes for a job under test: the script's own limit is for its readers' machines."""


def submit_all(
    state: State, *scripts: Path, extra: Sequence[Path] = (), options: Sequence[str] = ()
) -> list[FinishedJob]:
    """Submit scripts at once, each in a folder of its own beside other files, and wait for the ends of all jobs."""
    jobs = []
    for script in scripts:
        command = ["sbatch", "--parsable", *options, script.name]
        submitted = cluster.capture(state, command, folder=cluster.stage(state, script, extra=extra))
        assert submitted.returncode == 0, submitted.stderr
        jobs.append(submitted.stdout.strip())
    return [cluster.await_job(state, job) for job in jobs]


def submit(
    state: State,
    script: Path,
    arguments: Sequence[str] = (),
    options: Sequence[str] = (MORE_TIME,),
    **others: Any,
) -> FinishedJob:
    """Submit a script beside the programs of its guide, and wait for the end of its job."""
    job = cluster.submit(state, script, arguments, options=options, extra=programs_of(script), **others)
    expect_abort_at_exit(job.state == "FAILED", job.output)
    return job


def verify(state: State, job: str, folder: str) -> subprocess.CompletedProcess[str]:
    """Run `srunbook verify` as the user, on the login node, in a folder of the cluster."""
    return cluster.capture(state, [f"/home/{cluster.USER}/torch-env/bin/srunbook", "verify", job], folder=folder)


@dataclass
class Jobs:
    """Jobs that run beside each other, by name.

    Args:
        state: The cluster.
        until: Polls.
        folder: Where they were submitted.
        numbers: Their numbers.
    """

    state: State
    until: Callable[[Callable[[], object]], object]
    folder: str
    numbers: dict[str, str] = field(default_factory=dict)

    def submit(self, name: str, options: str, command: str, user: str = cluster.USER) -> None:
        """Submit the command of a job."""
        argv = ["sbatch", "--parsable", *options.split(), f"--wrap={command}"]
        folder = self.folder if user == cluster.USER else f"/home/{user}"
        done = cluster.capture(self.state, argv, folder=folder, user=user)
        assert done.returncode == 0, done.stderr
        self.numbers[name] = done.stdout.strip()

    def log(self, name: str) -> str:
        """Return what is in the log of a job by now."""
        path = self.state.folder / self.folder.lstrip("/") / f"slurm-{self.numbers[name]}.out"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def verify(self, job: str) -> subprocess.CompletedProcess[str]:
        """Run `srunbook verify` where they were submitted."""
        return verify(self.state, job, self.folder)

    def run_out_of_time(self, name: str) -> None:
        """Let the time of a running job be over. Slurm refuses a time that has passed when it hears of it."""
        end = ["scontrol", "update", f"JobId={self.numbers[name]}", "EndTime=now"]
        self.until(lambda: cluster.capture(self.state, end, user=None).returncode == 0)

    def ended(self, name: str) -> str:
        """Wait for the end of a job; return its number."""
        return cluster.await_job(self.state, self.numbers[name]).identity
