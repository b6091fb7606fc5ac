"""The job scripts of the Lightning guide: what they ask for, in what they differ, and what their jobs printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from recordings import read_recording, recording_path
from srunbook.ranklog import RankStart, parse_rank_lines

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted((ROOT / "slurm" / "lightning").glob("*.sbatch"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_tasks_are_the_gpus(script: Path) -> None:
    """Each script asks for as many tasks on a node as GPUs, and names neither --ntasks nor --gpus-per-task."""
    text = script.read_text(encoding="utf-8")

    gpus = re.findall(r"^#SBATCH --(?:gpus-per-node=|gres=gpu:a100:)(\d+) ", text, re.MULTILINE)
    assert re.findall(r"^#SBATCH --ntasks-per-node=(\d+)", text, re.MULTILINE) == gpus
    assert len(gpus) == 1
    assert not re.search(r"^#SBATCH --(ntasks|gpus-per-task)=", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("name", "world", "iterations"),
    [("single_gpu", 1, 219), ("multi_gpu", 4, 55), ("multi_node_multi_gpu", 8, 28), ("scale_out", 4, 55)],
)
def test_iterations_of_the_recorded_jobs(name: str, world: int, iterations: int) -> None:
    """7,000 samples in batches of 32 are 219, 55 and 28 iterations on 1, 4 and 8 processes."""
    recording = read_recording(recording_path(ROOT / "slurm" / "lightning" / f"{name}.sbatch"))
    starts = [line for line in parse_rank_lines(recording.output) if isinstance(line, RankStart)]
    counts = set(re.findall(r"Epoch \d+/10: (\d+) iterations", "\n".join(recording.output)))

    assert {start.world_size for start in starts} == {world}
    assert counts == {str(iterations)}
