"""Every script in slurm/, submitted byte for byte by an ordinary user."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.proof import job_run
from support.published import MORE_TIME, contained_in, give_engine, stage, submit, verify

from recordings import read_recording, recording_path
from srunbook import cluster
from srunbook.cluster import State

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted((ROOT / "slurm").rglob("*.sbatch"))

NODES = 4
"""Nodes of the cluster of this tier. Scripts that ask for more have tests of their own, on clusters as large."""

ELSEWHERE = ("preflight", "step")
"""Scripts with other tests: one leaves a node idle, of which `verify` complains, one runs the command it's given."""

RANKS_BESIDE_OTHERS = 4
"""A script with more ranks than that runs while no other worker has a test."""

LONG = 75
"""Seconds of the recorded job from which on a script runs with `--full` only."""


def asked_nodes(script: Path) -> int:
    """Return the number of nodes that a script asks for."""
    found = re.search(r"^#SBATCH --nodes=(\d+)", script.read_text(encoding="utf-8"), re.MULTILINE)
    return int(found[1]) if found else 1


def is_long(script: Path) -> bool:
    """Whether a script takes long: by its recorded job, or because its image has to be built with PyTorch."""
    if contained_in(script) and "jax" not in script.parent.name:
        return True
    if not recording_path(script).exists():
        return False
    hours, minutes, seconds = map(int, read_recording(recording_path(script)).accounting[0]["Elapsed"].split(":"))
    return 3600 * hours + 60 * minutes + seconds > LONG


def ranks(script: Path) -> int:
    """Return the number of ranks in the recording of a script, 0 where its programs print no rank lines."""
    recorded = read_recording(recording_path(script)).text if recording_path(script).exists() else ""
    return max(map(int, re.findall(r"\brank \d+/(\d+) ", recorded)), default=0)


def pytest_generate_tests(metafunc):
    """Scripts with a container run on the newest generation, the only one whose root has container engines."""
    if "script" not in metafunc.fixturenames:
        return
    chosen = metafunc.config.getoption("--slurm")
    plain = list(cluster.GENERATIONS) if chosen == "all" else [chosen]
    fitting = [script for script in SCRIPTS if asked_nodes(script) <= NODES and script.stem not in ELSEWHERE]
    fitting = [script for script in fitting if metafunc.config.getoption("--full") or not is_long(script)]
    newest = chosen if chosen == "26.05" else cluster.NEWEST
    pairs = [(generation, script) for generation in plain for script in fitting if not contained_in(script)]
    if chosen in ("all", "22.05", "26.05", cluster.NEWEST):
        newest = "26.05" if chosen == "all" else newest
        pairs += [(newest, script) for script in fitting if contained_in(script)]
    cases = [
        pytest.param(
            generation,
            script,
            id=f"{generation}-{script.relative_to(ROOT / 'slurm')}",
            marks=[pytest.mark.alone] if ranks(script) > RANKS_BESIDE_OTHERS else [],
        )
        for generation, script in pairs
    ]
    metafunc.parametrize(("generation", "script"), cases, scope="session")


def test_script_runs_as_published(slurm: State, recorded, generation, script, request):
    """A script completes on a real Slurm, `verify` hears of every rank, and its output is the recorded one."""
    if contained_in(script):
        give_engine(slurm, script)
    folder = stage(slurm, script)
    job = submit(slurm, script, folder=folder, options=() if request.config.getoption("--record") else (MORE_TIME,))
    staged = slurm.folder / folder.removeprefix("/") / script.name

    assert staged.read_bytes() == script.read_bytes()
    verdict = verify(slurm, job.identity, folder)
    assert verdict.returncode == 0, verdict.stdout + verdict.stderr + job.output
    recorded(script, job_run(slurm, script, job))


def test_scripts_and_recordings_are_paired():
    """Every script has a recording, and every recording has a script."""
    recordings = (ROOT / "slurm").rglob("*.recording.json")

    assert {path.with_name(path.name.partition(".")[0] + ".sbatch") for path in recordings} == {*SCRIPTS}
