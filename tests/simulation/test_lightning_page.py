"""The pages of the Lightning guide: what became of the guide that it grew out of."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "guides" / "lightning"

OLDER_GUIDE = [
    # its files
    *("slurm_jobs/multi_node_multi_gpu.sh", "src/train.py"),
    # its sections
    *("When to Use Multi-Node", "Multi-Node vs Multi-GPU", "How Multi-Node DDP Works", "SLURM Configuration"),
    *("Check Node Allocation", "GPU Info from All Nodes", "Training Progress", "Understanding the Slowdown"),
    *("High-Bandwidth Nodes", "Nodes Can't Communicate", "Unbalanced GPU Usage", "NCCL Errors", "Best Practices"),
    *("Start Small, Scale Up", "Adjust Batch Size", "Learning Rate Scaling", "Scaling Beyond 2 Nodes", "Key Takeaways"),
    # its options, variables and commands
    *("--nodes=2", "--ntasks-per-node=4", "--cpus-per-task=18", "--gres=gpu:a100:4", "--mem=500000", "squeue"),
    *("nvidia-smi", '--constraint="gpu-bw"', "SLURM_NODELIST", "SLURM_NNODES", "num_workers", "NCCL_TIMEOUT"),
    *("--batch_size", "--learning_rate", "sacctmgr show qos", "219, 55 and 28 iterations"),
]
"""What the guide this one grew out of names, in its words; its benchmark.py is still to come."""


def successors() -> list[tuple[str, str]]:
    """Rows of the table: what stood in the older guide, and what stands for it here."""
    table = (PAGES / "index.md").read_text(encoding="utf-8").split("(lightning-older-guide)=")[1]
    rows = re.findall(r"^\| (.+?) \| (.+?) \|.*\|$", table, re.MULTILINE)
    assert rows[0] == ("There", "Here")
    return rows[1:]


@pytest.mark.parametrize("name", OLDER_GUIDE)
def test_what_the_older_guide_names_has_a_successor(name: str) -> None:
    """Everything that the older guide names stands in the first column of the table."""
    assert any(name in there.replace("`", "") for there, _ in successors())


@pytest.mark.parametrize(("there", "here"), successors(), ids=lambda text: text[:40])
def test_successor_exists(there: str, here: str) -> None:
    """What the table points at exists: a file, an entry, a section of a page."""
    text = "".join(path.read_text(encoding="utf-8") for path in PAGES.glob("*.md"))
    targets = re.findall(r"\[\]\(([^)]+)\)", here)
    files = re.findall(r"`([^`]+)`", here)

    assert targets or files
    for target in targets:
        known = (PAGES / target).is_file() if target.endswith(".md") else f"({target})=\n" in text
        assert known, target
    for name in files:
        assert (ROOT / name).is_file(), name
