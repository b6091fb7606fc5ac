"""The zip of each guide, unpacked in a user's home: the commands of its README run to the end."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from support.zip_reader import ZipReader, commands_of, unpack

from srunbook import cluster
from srunbook.cluster import State

ZIPS = Path(__file__).resolve().parents[2] / "build" / "site" / "zips"
USER = "bob"

ENVIRONMENT = {"jax-multinode": "jax-env", "svgd": "jax-env"}
"""The environment of a guide's job scripts, where that is not `torch-env`."""

LEFT_OUT = {
    r"\bnvidia-smi\b|\ball_reduce_perf\b|--constraint=gpu-bw": "the nodes have no GPUs",
    r"/sys/class/infiniband": "the nodes have no InfiniBand",
    r"\bpip install\b|^curl |^apptainer |--dataset mnist": "nothing can be fetched",
    r"\bnc\b": "the nodes have no netcat",
    r"-m venv": "the site has made this environment already",
    r"--nodes=8|--gpus-per-node=8|--mem=500000|large_scale|multinode_advanced": "the cluster is smaller",
    r"singularity|module load|G4N|allreduce\.sbatch|_container\.sbatch": "only the newest generation has Apptainer",
    r"\bmy-llama\b|^python unfuse\.py": "the reader's own model",
    r"^sbatch submit\.sh|logs/my_cluster_": "my_cluster.yaml names the partition and modules of another cluster",
    r"sweep_submitit|^snakemake|wandb|mlflow": "needs packages that test_foreign_programs.py installs",
    r"^scrontab ": "the cluster's site hasn't enabled it; test_chains.py has one that has",
    r"^for part in ": "test_requeue.py has jobs that wait for those of their name",
    r"^tensorboard|^ssh ": "starts a server, or a connection to one",
    r"--epochs 1000": "this would train for a day",
    r"^scancel |^sstat |--jobid=": "every job has ended by then; test_requeue.py and test_hangs.py watch running ones",
}
"""Commands that cannot run here, and why."""


def reason(command: str, note: str) -> str | None:
    """Say why a command is not typed here; None for one that is."""
    if "which is not in this folder" in note:
        return "the reader's own file"
    return next((why for pattern, why in LEFT_OUT.items() if re.search(pattern, command)), None)


GUIDES = [
    # What all guides share; the short form of another one would start its first job, as test_scripts.py does.
    pytest.param("gloo-ddp", True, id="gloo-ddp-short"),
    *(
        pytest.param(guide, False, id=guide, marks=[pytest.mark.full, pytest.mark.timeout(3600)])
        for guide in ("torchrun", "gloo-ddp", "lightning", "jax-multinode", "svgd", "does-not-fit", "runs-that-last")
    ),
]


@pytest.mark.parametrize(("guide", "short"), GUIDES)
def test_readme(slurm: State, tmp_path, guide, short):
    """The commands of the README run in an unpacked folder that lies alone in a home, far from any checkout."""
    path = ZIPS / f"{guide}.zip"
    if not path.is_file():
        pytest.fail(f"{path} is not there: run `python3 noxfile.py -s docs` first")
    folder = unpack(path, tmp_path)
    cluster.capture(slurm, ["rm", "-rf", guide], user=USER)
    shutil.copytree(folder, slurm.folder / "home" / USER / guide)
    cluster.capture(slurm, ["chown", "--recursive", f"{USER}:", f"/home/{USER}/{guide}"], user=None)
    reader = ZipReader(slurm, guide, ENVIRONMENT.get(guide, "torch-env"), USER)
    for command, note in commands_of((folder / "README.md").read_text(encoding="utf-8")):
        if why := reason(command, note):
            print(f"left out, because {why}: {command}")
        else:
            reader.type(command, note)
        if short and reader.jobs:
            break

    assert reader.jobs
    assert not reader.problems, "\n\n".join(reader.problems)


def test_a_failed_command_is_seen(slurm: State):
    """A command with another status than the README tells, and a job that fails, are problems."""
    reader = ZipReader(slurm, ".", "torch-env", USER)

    for command, note in (("exit 3", ""), ("false", "exit status 1."), ("sbatch --wrap 'exit 4'", "")):
        reader.type(command, note)

    assert len(reader.problems) == 2
    assert "exit 3: status 3, not 0" in reader.problems[0]
    assert f"job {reader.jobs[0]} ended as FAILED, not COMPLETED" in reader.problems[1]
