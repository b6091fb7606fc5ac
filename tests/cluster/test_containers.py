"""What tasks find in a container of pyxis, with the stand-in that job scripts run with, and which signals arrive."""

from __future__ import annotations

import pytest
from support.published import give_pyxis, give_squashfs

from srunbook import cluster
from srunbook.cluster._provision import IMAGES


@pytest.fixture
def engines(slurm):
    """Give a cluster of the newest generation its container engines; there are none for the others."""
    if "apptainer" not in slurm.root["versions"]:
        pytest.skip("only the newest generation has container engines")
    give_squashfs(slurm, "jax")
    give_pyxis(slurm)
    return slurm


INSIDE = """\
mkdir -p "my run" /scratch/mine
touch /scratch/mine/here
cd "my run"
export SAID="it's mine, \\"quoted\\"" PATH="$HOME/torch-env/bin:$PATH" LC_ALL=POSIX
srun --nodes=2 --ntasks-per-node=2 --container-image="$HOME/jax.sqsh" --container-workdir="$PWD" \\
  --container-mounts="$PWD,/scratch/mine:/data:ro" \\
  bash -c 'echo "$SLURM_PROCID|$PWD|$SAID|$(type -p python)|$LC_ALL|$(ls /data)|$(ls -A /tmp)|$(touch /data/x 2>&1)"'
"""
"""Lines of a user whose folder has a blank, and whose variables differ from those of the image."""


@pytest.mark.full
def test_tasks_find_folders_and_variables(engines):
    """The job's variables pass whole, those of the image win, and only what is mounted can be seen."""
    done = cluster.capture(engines, ["bash", "-euc", INSIDE])
    variables = """/home/alice/my run|it's mine, "quoted"|/opt/jax/bin/python|C.UTF-8|"""
    folders = "here||touch: cannot touch '/data/x': Read-only file system"

    assert sorted(done.stdout.splitlines()) == [f"{rank}|{variables}{folders}" for rank in range(4)], done.stderr


SIGNALS = """\
#!/bin/bash
#SBATCH --ntasks=1 --time=2
await() { for name in apptainer pyxis folder "${@:2}"; do until [[ -e $1-$name ]]; do sleep 0.1; done; done; }
listen='trap "touch heard-$0; exit" USR1; touch ready-$0; until [[ -e end ]]; do sleep 0.1; done'
step() { name=$1; shift; srun --overlap --ntasks=1 "$@" bash -c "$listen" "$name" & }
step apptainer singularity run IMAGES/jax.sif
step pyxis --container-image="$HOME/jax.sqsh" --container-mounts="$PWD" --container-workdir="$PWD"
step folder ch-run --bind=/home --cd="$PWD" / --
step file ch-run --home --cd="$PWD" "$HOME/jax.sqsh" --
await ready file
scancel --signal=USR1 "$SLURM_JOB_ID"
await heard
touch end
wait
echo heard-*
"""
"""A job of a step in each engine. The folder that Charliecloud starts from is the node's own root."""


@pytest.mark.full
def test_signal_does_not_reach_a_squashfs_file_in_charliecloud(engines, tmp_path):
    """Slurm's warning reaches a program in each engine, but not in a file that ch-run mounts itself."""
    script = tmp_path / "signals.sbatch"
    script.write_text(SIGNALS.replace("IMAGES", str(IMAGES)), encoding="utf-8")
    job = cluster.submit(engines, script)

    assert job.output.splitlines()[-1:] == ["heard-apptainer heard-folder heard-pyxis"], job.output
