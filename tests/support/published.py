"""Clusters for tests, and scripts of this repository on them: each worker of a test run has clusters of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.exit_abort import aborted_at_exit

from srunbook import cluster
from srunbook.cli._checkout import programs_of, provision
from srunbook.cluster import FinishedJob, Image, Specification, State
from srunbook.cluster._images import ensure_image
from srunbook.cluster._provision import IMAGES
from srunbook.cluster._roots import ensure_root


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
    """Build the image of the torchrun guide once, and link it into every home of a cluster that has Apptainer.

    If this machine's pip finds wheels in a folder, PyTorch comes from there, in the version that runs here: the index
    may only have the one for CUDA, which is ten times as large.
    """
    asked = [sys.executable, "-m", "pip", "config", "get", "global.find-links"]
    wheels = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    arguments = {"MIRROR": "{mirror}", "INDEX": "{index}"}
    if wheels:  # they are for the Python of Debian 12
        arguments |= {"DEBIAN": "bookworm", "TORCH": "--find-links=/mnt torch==2.13.0"}
    definition = Path(__file__).resolve().parents[2] / "examples" / "torchrun" / "torch.def"
    image = Image("torch", definition, arguments, Path(wheels) if wheels else None)
    ensure_image(ensure_root(cluster.NEWEST), image, say=print)
    for user in state.specification.user_ids:
        link = state.folder / "home" / user / "torch.sif"
        link.unlink(missing_ok=True)
        link.symlink_to(IMAGES / "torch.sif")


def stage(state: State, script: Path, *, extra: Sequence[Path] = ()) -> str:
    """Copy a script and the programs of its guide into a new folder; return its path on the cluster."""
    return cluster.stage(state, script, extra=[*programs_of(script), *extra])


MORE_TIME = "--time=60"
"""Minutes for a job under test: the script's own limit is for its readers' machines."""


def submit(
    state: State,
    script: Path,
    arguments: Sequence[str] = (),
    options: Sequence[str] = (MORE_TIME,),
    **others: Any,
) -> FinishedJob:
    """Submit a script beside the programs of its guide, and wait for the end of its job.

    A test whose job failed by PyTorch's abort at exit, and by nothing else, is reported as an expected failure.
    """
    job = cluster.submit(state, script, arguments, options=options, extra=programs_of(script), **others)
    if job.state == "FAILED" and aborted_at_exit(job.output):
        pytest.xfail(
            "PyTorch's gloo aborted at exit (pytorch/pytorch#190489): docs/troubleshooting/torch-abort-at-exit.md"
        )
    return job
