"""The page of the gloo guide: its links, and what became of the guide that it grew out of."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "guides" / "gloo-ddp.md"

OLDER_GUIDE = [
    # its files and folders
    *("scripts/run_multinode.sh", "scripts/verify_multinode.sh", "slurm/ddp_2node_cpu.sbatch", "metrics.csv"),
    *("sacct_summary.txt", "checkpoint_latest.pth", "EXECUTION_SUMMARY.md", "docs/DDP_TROUBLESHOOTING.md"),
    *("results/ddp_cpu_<JOB_ID>/", "results/ddp_cpu_*.out", "optional monitoring files"),
    # its sections
    *("Using Helper Script", "Direct SLURM Submission", "Verification", "What Gets Verified", "Required Files"),
    *("Job Status", "Training Metrics", "DDP Configuration", "Expected Results", "Metrics CSV Format"),
    *("DDP Initialization Fails", "Training Hangs", "No Results Generated", "Technical Details"),
    *("CPU Backend (gloo)", "Key Differences from GPU DDP", "Environment Variables", "Comparison to GPU"),
    *("Document Results", "Run Profiling", "Scaling Experiments", "Bottleneck Analysis", "References"),
    # its options, columns, variables and commands
    *("--nodes", "--epochs", "--partition", "--account", "squeue -u $USER", "tail -f", "sinfo -p gpu-node"),
    *("epoch", "train_loss", "val_loss", "val_mae", "val_rmse", "epoch_time_sec", "throughput_samples_per_sec"),
    *("data_load_time_sec", "compute_time_sec", "gpu_util_avg", "cpu_util_avg", "srun --nodes=2 hostname"),
    *("BACKEND=gloo", "MASTER_ADDR", "MASTER_PORT=29500", "WORLD_SIZE", "RANK", "LOCAL_RANK", "device_ids"),
    # its messages and figures
    *("PENDING", "Connection refused", "Address already in use", "firewall/network settings"),
    *("50-100 samples/second per node", "85-95% parallel efficiency", "10-50x slower", "up to 4 nodes"),
]
"""All that the guide this one grew out of names, in its words."""


def successors() -> list[tuple[str, str]]:
    """Rows of the table at the end of the page: what stood in the older guide, and what stands for it here."""
    table = PAGE.read_text(encoding="utf-8").split("(gloo-ddp-older-guide)=")[1]
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
    """What the table points at exists: a file, an entry, or a section of the page."""
    page = PAGE.read_text(encoding="utf-8")
    targets = re.findall(r"\[\]\(([^)]+)\)", here)
    files = re.findall(r"`([^`]+)`", here)

    assert targets or files
    for target in targets:
        known = (PAGE.parent / target).is_file() if target.endswith(".md") else f"\n({target})=\n" in page
        assert known, target
    for name in files:
        assert (ROOT / name).is_file(), name


def test_links_within_the_page_have_targets() -> None:
    """Each label that the page links to is one of its own."""
    page = PAGE.read_text(encoding="utf-8")
    labels = set(re.findall(r"^\((\S+)\)=$", page, re.MULTILINE))

    assert set(re.findall(r"\]\((gloo-ddp[\w-]*)\)", page)) <= labels


def test_columns_of_metrics_are_explained() -> None:
    """Each column of metrics.csv has its row on the page."""
    code = (ROOT / "examples" / "gloo_ddp" / "result_files.py").read_text(encoding="utf-8")
    columns = re.findall(r'"(\w+)"', code.split("METRICS = (")[1].split(")")[0])
    section = PAGE.read_text(encoding="utf-8").split("(gloo-ddp-metrics)=")[1].split("(gloo-ddp-resume)=")[0]

    assert len(columns) == 11
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == columns
