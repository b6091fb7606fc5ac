"""The job scripts of the torchrun guide, with Slurm's commands stood in for.

On the real Slurm they run in tests/cluster and tests/cluster/faults.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.programs import stand_ins
from support.published import programs_of

ROOT = Path(__file__).resolve().parents[2]
ALL_SCRIPTS = sorted((ROOT / "slurm" / "torchrun").glob("*.sbatch"))
SCRIPTS = [path for path in ALL_SCRIPTS if path.name.startswith("run_")]
SHORT = [path for path in ALL_SCRIPTS if path.stem in ("ddp", "requeue")]  # the others change one line of ddp.sbatch

STAND_INS = {
    "scontrol": 'test "$*" = "show hostnames $SLURM_JOB_NODELIST" && printf "127.0.0.%d\\n" $(seq "$TEST_NODES")',
    "srun": 'printf "%s\\n" "$@"; echo "OMP_NUM_THREADS=$OMP_NUM_THREADS"; eval "${TEST_END:-}"',
}


@pytest.fixture
def submit(tmp_path: Path) -> Callable[..., str]:
    """Run a job script, as published, with stand-ins for srun and scontrol; return what it printed."""
    stand_ins(tmp_path, **STAND_INS)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "torch-env").symlink_to(sys.prefix)
    for path in programs_of(SCRIPTS[0]):
        (tmp_path / path.name).write_bytes(path.read_bytes())

    def run(
        script: Path, *arguments: str, nodes: int, gpus: int, job: int = 17, status: int = 0, **environ: str
    ) -> str:
        for kind in ("out", "err"):
            (tmp_path / f"slurm-{job}.{kind}").touch()
        result = subprocess.run(
            ["bash", script, *arguments],
            cwd=tmp_path,
            env={
                "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
                "HOME": str(tmp_path / "home"),
                "SLURM_JOB_ID": str(job),
                "SLURM_JOB_NAME": script.stem,
                "SLURM_JOB_NODELIST": "node[1-9]",
                "SLURM_JOB_NUM_NODES": str(nodes),
                "SLURM_CPUS_PER_TASK": "8",
                "TEST_NODES": str(nodes),
                **({"SLURM_GPUS_ON_NODE": str(gpus)} if gpus else {}),
                **environ,
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == status, result.stdout + result.stderr
        return result.stdout + (result.stderr if status else "")

    return run


@pytest.mark.parametrize(("nodes", "gpus"), [(4, 8), (2, 0)])
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_script_adapts_to_the_allocation(script: Path, nodes: int, gpus: int, submit: Any, tmp_path: Path) -> None:
    """A script reads nodes and GPUs from Slurm, and makes one rendezvous for all nodes."""
    lines = submit(script, "--epochs=3", nodes=nodes, gpus=gpus, job=7017).splitlines()

    assert f"--nnodes={nodes}" in lines
    assert f"--nproc-per-node={gpus or 2}" in lines
    assert f"OMP_NUM_THREADS={1 if gpus else 4}" in lines
    assert "--rdzv-id=7017" in lines
    assert "--rdzv-endpoint=127.0.0.1:25017" in lines
    assert {"--kill-on-bad-exit=1", "--cpus-per-task=8", "--checkpoint-dir=./checkpoints/7017"} <= set(lines)
    assert lines[-2] == "--epochs=3"
    for kind in ("out", "err"):
        assert (tmp_path / "logs" / f"slurm-7017.{kind}").samefile(tmp_path / f"slurm-7017.{kind}")


def test_requeue_gives_up_starts_that_save_nothing(submit: Any) -> None:
    """The fourth start after three that saved nothing is refused with the status 78; a save begins the count anew."""
    script = ROOT / "slurm" / "torchrun" / "run_requeue.sbatch"
    in_vain, of_use = "exit 1", 'rm "$JOB_NOTES.starts"; exit 1'
    for end in (in_vain, in_vain, of_use, in_vain, in_vain, in_vain):
        submit(script, nodes=1, gpus=1, status=1, TEST_END=end)
    printed = submit(script, nodes=1, gpus=1, status=78, TEST_END=in_vain)

    assert "error: 3 starts in a row saved nothing; to try again: rm /" in printed
    assert "torchrun" not in printed


@pytest.mark.parametrize("status", [75, 78])
def test_requeue_ends_with_the_status_of_the_program(status: int, submit: Any) -> None:
    """What the program leaves as its status is the script's, though torchrun ends with 1; the next start forgets it."""
    script = ROOT / "slurm" / "torchrun" / "run_requeue.sbatch"
    submit(script, nodes=1, gpus=1, status=status, TEST_END=f'echo {status} >"$JOB_NOTES.status"; exit 1')
    submit(script, nodes=1, gpus=1, status=1, TEST_END="exit 1")


@pytest.mark.parametrize("script", SHORT, ids=lambda path: path.name)
def test_short_script(script: Path, submit: Any) -> None:
    """A short script reads nodes and GPUs from Slurm, and starts the program it is given."""
    printed = submit(script, nodes=2, gpus=4, job=7017).splitlines()
    other = submit(script, "resume.py", "--option", nodes=2, gpus=4, job=7017).splitlines()

    assert {"--nnodes=2", "--nproc-per-node=4", "OMP_NUM_THREADS=2"} <= set(printed)
    assert {"--rdzv-id=7017", "--rdzv-endpoint=127.0.0.1:25017", "--cpus-per-task=8"} <= set(printed)
    assert printed[-2] == f"{script.stem}.py"
    assert other[-3:-1] == ["resume.py", "--option"]
    assert ("--signals-to-handle=SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1" in printed) is (script.stem == "requeue")


@pytest.mark.parametrize("script", SHORT, ids=lambda path: path.name)
def test_short_script_says_that_it_got_no_gpus(script: Path, submit: Any) -> None:
    """Without GPUs a short script ends before it starts anything, rather than train on one process of each node."""
    printed = submit(script, nodes=2, gpus=0, status=1)

    assert printed.rstrip().endswith("SLURM_GPUS_ON_NODE: this job has no GPUs")
    assert "--nnodes" not in printed


def test_programs_beside_a_script_have_different_names() -> None:
    """A script finds the short programs and the full ones in one flat folder, where none replaces another."""
    names = [path.name for path in programs_of(SCRIPTS[0])]

    assert {"ddp.py", "train_distributed.py", "processes.py"} <= set(names)
    assert len(set(names)) == len(names)
