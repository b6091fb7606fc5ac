"""Every script in slurm/, submitted byte for byte by an ordinary user."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.proof import job_run, shortcomings
from support.published import MORE_TIME, give_torch_image, stage, submit

from recordings import read_recording, recording_path
from srunbook import cluster
from srunbook.cluster import FinishedJob, State

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted((ROOT / "slurm").rglob("*.sbatch"))

NODES = 4
"""Nodes of the cluster of this tier. Scripts that ask for more have tests of their own, on clusters as large."""

RANKS_BESIDE_OTHERS = 4
"""A script with more ranks than that runs while no other worker has a test."""

LONG = 75
"""Seconds of the recorded job from which on a script runs with `--full` only."""

TORCH_IMAGE = "torchrun/ddp_container"
"""The script for whose image PyTorch is installed: it runs with `--full` only."""


def asked_nodes(script: Path) -> int:
    """Return the number of nodes that a script asks for."""
    found = re.search(r"^#SBATCH --nodes=(\d+)", script.read_text(encoding="utf-8"), re.MULTILINE)
    return int(found[1]) if found else 1


def needs_apptainer(script: Path) -> bool:
    return "singularity run" in script.read_text(encoding="utf-8")


def is_long(script: Path) -> bool:
    """Whether a script takes long, by its recorded job."""
    if not recording_path(script).exists():
        return False
    hours, minutes, seconds = map(int, read_recording(recording_path(script)).accounting[0]["Elapsed"].split(":"))
    return 3600 * hours + 60 * minutes + seconds > LONG or script.match(f"{TORCH_IMAGE}.sbatch")


def ranks(script: Path) -> int:
    """Return the number of ranks in the recording of a script, 0 where its programs print no rank lines."""
    recorded = read_recording(recording_path(script)).text if recording_path(script).exists() else ""
    return max(map(int, re.findall(r"\brank \d+/(\d+) ", recorded)), default=0)


def pytest_generate_tests(metafunc):
    """Scripts with a container run on the newest generation, the only one whose packages hold Apptainer."""
    if "script" not in metafunc.fixturenames:
        return
    chosen = metafunc.config.getoption("--slurm")
    plain = list(cluster.GENERATIONS) if chosen == "all" else [chosen]
    fitting = [script for script in SCRIPTS if asked_nodes(script) <= NODES]
    fitting = [script for script in fitting if metafunc.config.getoption("--full") or not is_long(script)]
    newest = chosen if chosen == "26.05" else cluster.NEWEST
    pairs = [(generation, script) for generation in plain for script in fitting if not needs_apptainer(script)]
    if chosen in ("all", "22.05", "26.05", cluster.NEWEST):
        newest = "26.05" if chosen == "all" else newest
        pairs += [(newest, script) for script in fitting if needs_apptainer(script)]
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


def unpaired(folder: Path) -> list[str]:
    """Scripts without a recording, and recordings without a script."""
    scripts = {path.with_suffix("") for path in folder.rglob("*.sbatch")}
    recordings = {path.with_name(path.name.partition(".")[0]) for path in folder.rglob("*.recording.json")}
    return sorted(str(path.relative_to(folder)) for path in scripts ^ recordings)


def test_script_runs_as_published(slurm: State, recorded, generation, script, request):
    """A script completes on a real Slurm, every rank speaks, its output is the recorded one, and `verify` passes it."""
    if needs_apptainer(script):
        assert (slurm.folder.parents[1] / "images" / "jax.sif").exists(), "the image of jax.def was not built"
    if script.match(f"{TORCH_IMAGE}.sbatch"):
        give_torch_image(slurm)
    folder = stage(slurm, script)
    job = submit(slurm, script, folder=folder, options=() if request.config.getoption("--record") else (MORE_TIME,))
    staged = slurm.folder / folder.removeprefix("/") / script.name

    assert staged.read_bytes() == script.read_bytes()
    assert not shortcomings(script, job), f"{shortcomings(script, job)}\n{job.output}"
    verify = [f"/home/{cluster.USER}/torch-env/bin/srunbook", "verify", job.identity]
    verdict = cluster.capture(slurm, verify, folder=folder)
    assert verdict.returncode == 0, verdict.stdout + verdict.stderr
    recorded(script, job_run(slurm, script, job))


def test_scripts_and_recordings_are_paired():
    """Every script has a recording, and every recording has a script."""
    assert unpaired(ROOT / "slurm") == []


def test_an_unpaired_file_is_found(tmp_path):
    """A script without recording and a recording without script are both named."""
    (tmp_path / "guide").mkdir()
    (tmp_path / "guide" / "alone.sbatch").touch()
    (tmp_path / "guide" / "orphan.recording.json").touch()
    (tmp_path / "guide" / "both.sbatch").touch()
    (tmp_path / "guide" / "both.recording.json").touch()

    assert unpaired(tmp_path) == ["guide/alone", "guide/orphan"]


@pytest.fixture(scope="module")
def sample() -> Path:
    """Return a script whose job is short."""
    return ROOT / "slurm" / "jax_multinode" / "train_data_parallel.sbatch"


@pytest.fixture
def edited(sample, tmp_path):
    """Write the sample with one thing changed, and its recording as it is."""

    def edit(old: str, new: str) -> Path:
        text = sample.read_text(encoding="utf-8")
        assert old in text
        script = tmp_path / sample.name
        script.write_text(text.replace(old, new), encoding="utf-8")
        recording_path(script).write_bytes(recording_path(sample).read_bytes())
        return script

    return edit


def recorded_job(sample: Path) -> FinishedJob:
    recording = read_recording(recording_path(sample))
    return FinishedJob("1", recording.accounting, recording.text, 0)


def test_one_node_too_many_is_refused(slurm, edited):
    """A script that asks for more nodes than there are does not pass."""
    script = edited("--nodes=2", "--nodes=5")

    with pytest.raises(cluster.ClusterError, match="sbatch refused"):
        cluster.submit(slurm, script)


def test_a_job_that_ran_nothing_does_not_pass(slurm, edited):
    """A job that ends with status 0 but started no rank is found out."""
    script = edited("set -eo pipefail", "exit 0")
    job = cluster.submit(slurm, script)

    assert job.exit_status == 0
    assert any("nothing was printed by rank 0" in text for text in shortcomings(script, job))


def test_a_rank_that_says_nothing_does_not_pass(sample):
    """The loss of one rank's lines is found in an output that is otherwise whole."""
    job = recorded_job(sample)
    lines = [line for line in job.output.splitlines() if not line.startswith("3:")]
    silent = FinishedJob(job.identity, job.rows, "\n".join(lines), 0)

    assert shortcomings(sample, job) == []
    assert any("rank 3" in text for text in shortcomings(sample, silent))


def test_containers_need_the_generation_with_apptainer(slurm):
    """Where Debian has no Apptainer, a script with a container fails by name, and passes nowhere by accident."""
    if "apptainer" in slurm.root["versions"]:
        pytest.skip("this generation has Apptainer")
    script = ROOT / "slurm" / "jax_multinode" / "G4N1p4.sbatch"
    job = submit(slurm, script)

    assert job.state == "FAILED"
    assert "singularity" in job.output
    assert shortcomings(script, job)
