"""The page of the torchrun guide: its links, and what became of the guide that it grew out of."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "torchrun"
PAGE = ROOT / "docs" / "guides" / "torchrun.md"

OLDER_GUIDE = [
    # its files and folders
    *("run_distributed.slurm", "train_distributed.py", "requirements.txt", "checkpoint_epoch_1.pt"),
    *("logs/slurm-<job_id>.out", "logs/slurm-<job_id>.err", "the vision model", ".venv"),
    # its sections
    *("Requirements", "Configuration", "Environment activation", "Network interface", "Monitor the Job"),
    *("Cancel the Job", "How It Works", "Data Distribution", "Model Architecture", "Dataset"),
    *("NCCL Timeout or Initialization Failure", "Out of Memory (OOM)", "Slow Training", "Hanging at Initialization"),
    *("Debugging", "Performance Tips", "Scaling to More Nodes/GPUs", "Checkpoints", "Only rank 0 saves"),
    *("Verifying Distributed Training", "Additional Resources"),
    # its settings, variables and commands
    *("EPOCHS", "BATCH_SIZE", "LEARNING_RATE", "DATA_DIR", "CHECKPOINT_DIR", "--nodes", "--gpus-per-node"),
    *("--cpus-per-task", "--time", "--batch-size", "NCCL_SOCKET_IFNAME=^docker,lo", "NCCL_IB_DISABLE=0"),
    *("NCCL_NET_GDR_LEVEL=2", "NCCL_DEBUG=INFO", "TORCH_DISTRIBUTED_DEBUG=DETAIL", "MASTER_PORT"),
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "squeue", "tail -f", "scancel", "mkdir -p logs"),
    # its code
    *("setup_distributed()", "DDP(model)", "DistributedSampler", "dist.all_reduce()", "dist.barrier()"),
    *("SimpleConvNet", "get_dataloader()", "datasets.ImageFolder", "pin_memory=True", "num_workers", "MNIST"),
    *("gradient checkpointing", "torch.cuda.amp", "autocast", "GradScaler", "torchvision", "torchaudio"),
    *("16 total GPUs", "Master node", "Avg Loss"),
]
"""All that the guide this one grew out of names, in its words."""


def successors() -> list[tuple[str, str]]:
    """Rows of the table at the end of the page: what stood in the older guide, and what stands for it here."""
    table = PAGE.read_text(encoding="utf-8").split("(torchrun-older-guide)=")[1]
    rows = re.findall(r"^\| (.+?) \| (.+?) \|.*\|$", table, re.MULTILINE)
    assert rows[0] == ("There", "Here")
    return rows[1:]


@pytest.mark.parametrize("name", OLDER_GUIDE)
def test_what_the_older_guide_names_has_a_successor(name: str) -> None:
    """Everything that the older guide names stands in the first column of the table."""
    words = [there.replace("`", "") for there, _ in successors()]

    assert any(re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", there) for there in words)


@pytest.mark.parametrize(("there", "here"), successors(), ids=lambda text: text[:40])
def test_successor_exists(there: str, here: str) -> None:
    """What the table points at exists: a file, an entry, a section of the page, a word of the programs."""
    page = PAGE.read_text(encoding="utf-8")
    programs = "".join(path.read_text(encoding="utf-8") for path in EXAMPLES.glob("*.py"))
    targets = re.findall(r"\[\]\(([^)]+)\)", here)
    words = re.findall(r"`([^`]+)`", here)

    assert targets or words
    for target in targets:
        known = (PAGE.parent / target).is_file() if target.endswith(".md") else f"\n({target})=\n" in page
        assert known, target
    for word in words:
        assert (ROOT / word).is_file() if "/" in word else word in programs, word


def test_links_within_the_page_have_targets() -> None:
    """Each label that the page links to is one of its own."""
    page = PAGE.read_text(encoding="utf-8")
    labels = set(re.findall(r"^\((\S+)\)=$", page, re.MULTILINE))

    assert set(re.findall(r"\]\((torchrun[\w-]*)\)", page)) <= labels
