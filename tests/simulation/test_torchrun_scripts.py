"""The job scripts of the torchrun guide, with Slurm's commands stood in for.

On the real Slurm they run in tests/cluster and tests/cluster/faults.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from srunbook.cli._checkout import programs_of
from srunbook.ranklog import RankEnd, parse_rank_lines

ROOT = Path(__file__).resolve().parents[2]
ALL_SCRIPTS = sorted((ROOT / "slurm" / "torchrun").glob("*.sbatch"))
SCRIPTS = [path for path in ALL_SCRIPTS if path.name.startswith("run_")]
SHORT = [path for path in ALL_SCRIPTS if path.stem in ("ddp", "requeue")]  # the others change one line of ddp.sbatch

STAND_INS = {
    "scontrol": 'test "$*" = "show hostnames $SLURM_JOB_NODELIST" && printf "127.0.0.%d\\n" $(seq "$TEST_NODES")',
    "srun": 'if [[ -n "${TEST_RUN:-}" ]]; then\n'
    '  while [[ "$1" == --* ]]; do shift; done\n'
    '  exec srunbook simulate --nodes "$TEST_NODES" --gpus-per-node "$SLURM_GPUS_ON_NODE" -- "$@"\n'
    "fi\n"
    'printf "%s\\n" "$@"; echo "OMP_NUM_THREADS=$OMP_NUM_THREADS"; eval "${TEST_END:-}"',
}


@pytest.fixture
def submit(tmp_path: Path) -> Callable[..., str]:
    """Run a job script, as published, with stand-ins for srun and scontrol; return what it printed."""
    for name, text in STAND_INS.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/bash\n{text}\n", encoding="utf-8")
        path.chmod(0o755)
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


@pytest.mark.parametrize(("nodes", "gpus"), [(1, 4), (2, 1), (4, 8), (2, 0)])
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


def test_scripts_differ_only_where_they_must() -> None:
    """Between the scripts no line differs but those of their programs."""
    texts = {path.stem: path.read_text(encoding="utf-8").splitlines() for path in SCRIPTS}
    common = set.intersection(*map(set, texts.values()))

    assert set(texts) == {"run_distributed", "run_vision", "run_requeue"}
    for name, lines in texts.items():
        assert len(set(lines) - common) <= (24 if name == "run_requeue" else 12)


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


def marked_as_one_has_to(lines: list[str]) -> None:
    """Check that all lines that depend on the site end in EDIT, and that a node gets one torchrun."""
    site = ("partition", "account", "nodes", "gpus-per-node", "cpus-per-task", "mem", "time")
    marked = [line for line in lines if "EDIT" in line]
    for name in site:
        assert any(line.startswith(f"#SBATCH --{name}=") for line in marked), name
    assert any("torch-env" in line for line in marked)
    assert any(line.startswith("#SBATCH --ntasks-per-node=1 ") for line in lines)


@pytest.mark.parametrize("script", SHORT, ids=lambda path: path.name)
@pytest.mark.parametrize(("nodes", "gpus", "threads"), [(2, 4, 2), (3, 1, 8)])
def test_short_script(script: Path, nodes: int, gpus: int, threads: int, submit: Any, tmp_path: Path) -> None:
    """A short script reads nodes and GPUs from Slurm, and starts the program it is given."""
    lines = script.read_text(encoding="utf-8").splitlines()
    (tmp_path / "home" / "torch-env").unlink()
    (tmp_path / "home" / "torch-env" / "bin").mkdir(parents=True)
    (tmp_path / "home" / "torch-env" / "bin" / "activate").touch()
    printed = submit(script, nodes=nodes, gpus=gpus, job=7017).splitlines()
    other = submit(script, "resume.py", "--option", nodes=nodes, gpus=gpus, job=7017).splitlines()

    marked_as_one_has_to(lines)
    assert {f"--nnodes={nodes}", f"--nproc-per-node={gpus}", f"OMP_NUM_THREADS={threads}"} <= set(printed)
    assert {"--rdzv-id=7017", "--rdzv-endpoint=127.0.0.1:25017", "--cpus-per-task=8"} <= set(printed)
    assert printed[-2] == f"{script.stem}.py"
    assert other[-3:-1] == ["resume.py", "--option"]
    assert ("--signals-to-handle=SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1" in printed) is (script.stem == "requeue")


@pytest.mark.parametrize("script", SHORT, ids=lambda path: path.name)
def test_short_script_says_that_it_got_no_gpus(script: Path, submit: Any, tmp_path: Path) -> None:
    """Without GPUs a short script ends before it starts anything, rather than train on one process of each node."""
    (tmp_path / "home" / "torch-env").unlink()
    (tmp_path / "home" / "torch-env" / "bin").mkdir(parents=True)
    (tmp_path / "home" / "torch-env" / "bin" / "activate").touch()
    printed = submit(script, nodes=2, gpus=0, status=1)

    assert printed.rstrip().endswith("SLURM_GPUS_ON_NODE: this job has no GPUs")
    assert "--nnodes" not in printed


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_script_has_the_form_of_one(script: Path) -> None:
    """A job script has its directives before any command, one torchrun on a node, and marks what to edit."""
    lines = script.read_text(encoding="utf-8").splitlines()
    first_command = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))

    assert lines[0] == "#!/bin/bash"
    assert lines[first_command] == "set -eo pipefail"
    assert not any(line.startswith("#SBATCH") for line in lines[first_command:])
    marked_as_one_has_to(lines)
    assert not any(re.search(r"--(output|error)=.*/", line) for line in lines)  # a folder there may be missing


def test_programs_beside_a_script_have_different_names() -> None:
    """A script finds the short programs and the full ones in one flat folder, where none replaces another."""
    names = [path.name for path in programs_of(SCRIPTS[0])]

    assert {"ddp.py", "train_distributed.py", "processes.py"} <= set(names)
    assert len(set(names)) == len(names)


def test_ports_of_jobs_stay_out_of_the_systems_range() -> None:
    """The port lies below those that Linux hands out by itself, and neighbouring jobs have different ones."""
    (formula,) = {line for path in SCRIPTS for line in path.read_text().splitlines() if line.startswith("PORT=")}
    code = f'for SLURM_JOB_ID in "$@"; do {formula.split("#")[0]}; echo $PORT; done'
    jobs = [1, 6999, 7000, 7001, 4294967295]
    ports = subprocess.run(["bash", "-c", code, "-", *map(str, jobs)], capture_output=True, text=True, check=True)

    assert [int(port) for port in ports.stdout.split()] == [25001, 31999, 25000, 25001, 25000 + 4294967295 % 7000]


@pytest.mark.full
def test_script_trains(submit: Any, tmp_path: Path) -> None:
    """The script, as published, trains on two nodes with two processes each, as it does on the real Slurm."""
    script = ROOT / "slurm" / "torchrun" / "run_distributed.sbatch"
    printed = submit(script, "--epochs=1", nodes=2, gpus=2, TEST_RUN="yes", job=25000)
    ends = [line for line in parse_rank_lines(printed.splitlines()) if isinstance(line, RankEnd)]

    assert len(ends) == 4
    assert "on 4 CPU processes (nodes x processes: 2 x 2" in printed
    assert (tmp_path / "checkpoints" / "25000" / "checkpoint_epoch_1.pt").is_file()


def test_requirements_are_pinned_as_the_tests_ran() -> None:
    """examples/torchrun/requirements.txt asks for the torch that the constraints pin."""
    requirements = (ROOT / "examples/torchrun/requirements.txt").read_text(encoding="utf-8")
    pinned = re.findall(r"^torch==(\S+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)

    assert re.findall(r"^torch==(\S+)$", requirements, re.MULTILINE) == [pinned[0].split("+")[0]]
    assert requirements.split()[1:] == ["matplotlib", "numpy", "scikit-learn"]
