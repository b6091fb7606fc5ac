"""The tables below docs/about/older-guides: what became of all that the older guides name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDES = ROOT / "docs" / "guides"
TABLES = ROOT / "docs" / "about" / "older-guides"


@dataclass(frozen=True)
class Guide:
    """A guide, and what the older one names, in its words.

    Args:
        label: What the labels of its sections begin with.
        pages: Its pages below docs/guides.
        table: Its page below docs/about/older-guides, without the suffix.
        programs: Folders of the files whose words may be successors as well; without one only files may.
        names: Names in the older guide.
    """

    label: str
    pages: str
    table: str
    programs: tuple[str, ...]
    names: tuple[str, ...]

    @property
    def text(self) -> str:
        """Return the text of all its pages."""
        paths = sorted(GUIDES.glob(self.pages))
        assert paths, self.pages
        return "".join(path.read_text(encoding="utf-8") for path in paths)

    @property
    def labels(self) -> set[str]:
        """Return the labels of its sections, in either markup."""
        found = re.findall(r"^(?:\((\S+)\)=|\.\. _(\S+):)$", self.text, re.MULTILINE)
        return {markdown or restructured for markdown, restructured in found}

    def successors(self) -> list[tuple[str, str]]:
        """Return the rows of the table: what the older guide has, and what replaces it here."""
        table = (TABLES / f"{self.table}.md").read_text(encoding="utf-8")
        rows = re.findall(r"^\| (.+?) \| (.+?) \|.*\|$", table, re.MULTILINE)
        assert rows[0] == ("There", "Here")
        return rows[1:]


TORCHRUN = Guide(
    "torchrun",
    "torchrun/*.md",
    "torchrun",
    ("examples/torchrun",),
    (
        # its files and folders
        *("run_distributed.slurm", "train_distributed.py", "requirements.txt", "checkpoint_epoch_1.pt"),
        *("logs/slurm-<job_id>.out", "logs/slurm-<job_id>.err", "the vision model", ".venv"),
        # its sections
        *("Requirements", "Configuration", "Environment activation", "Network interface", "Monitor the Job"),
        *("Cancel the Job", "How It Works", "Data Distribution", "Model Architecture", "Dataset"),
        *(
            "NCCL Timeout or Initialization Failure",
            "Out of Memory (OOM)",
            "Slow Training",
            "Hanging at Initialization",
        ),
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
    ),
)
GLOO = Guide(
    "gloo-ddp",
    "gloo-ddp/*",
    "gloo-ddp",
    (),
    (
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
    ),
)
LIGHTNING = Guide(
    "lightning",
    "lightning/*.md",
    "lightning",
    (),
    (
        # its files
        *("slurm_jobs/multi_node_multi_gpu.sh", "src/train.py"),
        # its sections
        *("When to Use Multi-Node", "Multi-Node vs Multi-GPU", "How Multi-Node DDP Works", "SLURM Configuration"),
        *("Check Node Allocation", "GPU Info from All Nodes", "Training Progress", "Understanding the Slowdown"),
        *("High-Bandwidth Nodes", "Nodes Can't Communicate", "Unbalanced GPU Usage", "NCCL Errors", "Best Practices"),
        *(
            "Start Small, Scale Up",
            "Adjust Batch Size",
            "Learning Rate Scaling",
            "Scaling Beyond 2 Nodes",
            "Key Takeaways",
        ),
        # its options, variables and commands
        *("--nodes=2", "--ntasks-per-node=4", "--cpus-per-task=18", "--gres=gpu:a100:4", "--mem=500000", "squeue"),
        *("nvidia-smi", '--constraint="gpu-bw"', "SLURM_NODELIST", "SLURM_NNODES", "num_workers", "NCCL_TIMEOUT"),
        *("--batch_size", "--learning_rate", "sacctmgr show qos", "219, 55 and 28 iterations"),
        # its benchmarks
        *("src/benchmark.py --output_dir outputs", "Benchmarking All Configurations", "Expected Performance"),
        *("Speedup", "Efficiency", "Throughput"),
    ),
)

SVGD = Guide(
    "svgd",
    "svgd/*.md",
    "svgd",
    ("examples/svgd",),
    (
        # its files
        *("generate_slurm_script.py", "simple_multinode_example.py", "my_svgd.py", "examples/slurm_configs/"),
        *("production.yaml", "my_cluster.yaml", "examples/slurm_multinode.sh", "examples/slurm_multinode_advanced.sh"),
        *("examples/slurm_multinode_example.py", "svgd_multinode_<JOB_ID>.out", "logs/svgd_<JOB_ID>.out"),
        # its sections
        *("Modular Approach", "Three Simple Steps", "Complete Example", "Benefits", "Comparison", "Quick Reference"),
        *("Single-Node vs Multi-Node", "Architecture", "Three-Level Parallelism", "JAX Distributed Communication"),
        *(
            "Quick Start",
            "SLURM Parameters",
            "Particle Count Calculation",
            "Example configurations",
            "Coordinator Setup",
        ),
        *("JAX Distributed Initialization", "Optimal Particle Count", "Network Configuration", "Memory Management"),
        *("XLA Optimization Flags", "Example 1", "Example 2", "Example 3", "Expected Speedup", "Scaling Efficiency"),
        *("Best Practices", "Additional Resources", "Legacy Approach", "Mock SLURM environment"),
        # its options, profiles and fields
        *("--list-profiles", "--profile", "--config", "--script", "--output", "--help"),
        *("debug", "small", "medium", "large", "production"),
        *("name", "nodes", "cpus_per_node", "memory_per_cpu", "time_limit", "partition", "coordinator_port"),
        *("platform", "env_vars", "modules_to_load", "--nodes", "--ntasks-per-node", "--cpus-per-task"),
        *("--exclusive", "--mem-per-cpu"),
        # its functions and variables
        *("ptdalgorithms.distributed_utils", "initialize_distributed()", "process_id", "num_processes"),
        *("local_device_count", "global_device_count", "run_my_svgd(dist_info)", "ptdalgorithms.ffi_wrappers"),
        *("compute_pmf_ffi", "pmap", "pjit", "jax.distributed.initialize()", "SLURM_COORDINATOR_ADDRESS"),
        *("JAX_COORDINATOR_PORT", "SLURM_JOB_NODELIST", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_CPUS_PER_TASK"),
        *("JAX_ENABLE_X64", "NCCL_IB_DISABLE", "NCCL_NET_GDR_LEVEL", "NCCL_SOCKET_IFNAME", "NCCL_SOCKET_NTHREADS"),
        *("NCCL_DEBUG", "XLA_PYTHON_CLIENT_PREALLOCATE", "XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_FLAGS"),
        *("--xla_force_host_platform_device_count", "--xla_cpu_multi_thread_eigen", "--xla_cpu_enable_fast_math"),
        # its messages and commands
        *("Coordinator connection timeout", "Number of devices mismatch", "Particles not divisible by device count"),
        *("Slow inter-node communication", "Out of memory", "squeue -u $USER", "tail -f", "watch -n 5", "nc -vz"),
        *("sudo firewall-cmd", "ifconfig", "iftop", "nload", "free -h", "Profile first iteration", "Save checkpoints"),
        *("Log per-process metrics", "Validate results", "2-8 particles per device", "port 12345"),
    ),
)

JAX = Guide(
    "jax",
    "jax-multinode/*",
    "jax-multinode",
    ("examples/jax_multinode", "slurm/jax_multinode"),
    (
        # its files
        *("query_v1.py", "query_v2.py", "allreduce.py"),
        *("G4N1p4.slurm", "G4N2p2.slurm", "G4N2p4.slurm", "allreduce.slurm"),
        # its modules and variables
        *("module load dl", "module load jax/23.10-sif", "JAX_IMAGE", "IMAGE", "SLURM_JOBID", "SLURM_NTASKS"),
        "SLURM_NNODES",
        # its options
        *(
            "--time",
            "--ntasks",
            "--tasks-per-node",
            "--cpus-per-task",
            "--gpus",
            "--gpus-per-node",
            "--constraint=a100",
        ),
        *("srun -u", "singularity run --nv", "num_processes", "local_device_ids"),
        # its sections
        *("Why Use Singularity Containers for JAX?", "Loading JAX Module", "Verifying Your Setup"),
        *("Single Node, Single Process per GPU", "Multi-node with Multiple GPUs per Process"),
        *("Multi-node with Single GPU per Process", "Distributed All-Reduce Example", "Expected Output"),
        *("Key Concepts", "Collective Operations", "Device Management", "Process and GPU Mapping Strategies"),
        *("Best Practices", "Additional Resources", "help@hpc.kaust.edu.sa"),
        # its troubleshooting
        *("JAX doesn't see all GPUs", "Distributed initialization hangs", "CUDA out of memory errors"),
        "Performance doesn't scale linearly",
    ),
)

GUIDES_WITH_TABLES = (TORCHRUN, GLOO, LIGHTNING, SVGD, JAX)

SUCCESSORS = [
    pytest.param(guide, *row, id=f"{guide.label}-{row[0][:40]}")
    for guide in GUIDES_WITH_TABLES
    for row in guide.successors()
]


@pytest.mark.parametrize(
    ("guide", "name"),
    [pytest.param(guide, name, id=f"{guide.label}-{name}") for guide in GUIDES_WITH_TABLES for name in guide.names],
)
def test_what_the_older_guide_names_has_a_successor(guide: Guide, name: str) -> None:
    """Everything that the older guide names stands in the first column of the table."""
    words = [there.replace("`", "") for there, _ in guide.successors()]

    assert any(re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", there) for there in words)


@pytest.mark.parametrize(("guide", "there", "here"), SUCCESSORS)
def test_successor_exists(guide: Guide, there: str, here: str) -> None:
    """What the table points at exists: a file, a page, a section of the guide, a word of its programs."""
    files = [path for folder in guide.programs for path in (ROOT / folder).rglob("*.*") if path.suffix != ".pyc"]
    programs = "".join(path.read_text(encoding="utf-8") for path in files)
    targets = re.findall(r"\]\(([^)]+)\)", here)
    words = re.findall(r"`([^`]+)`", here)

    assert targets or words or here.startswith("your site")
    for target in targets:
        assert (TABLES / target).is_file() if target.endswith(".md") else target in guide.labels, target
    for word in words:
        assert (ROOT / word).is_file() if word.startswith(("examples/", "slurm/", "scripts/")) else word in programs, (
            word
        )


@pytest.mark.parametrize("guide", GUIDES_WITH_TABLES, ids=lambda guide: guide.label)
def test_links_within_the_guide_have_targets(guide: Guide) -> None:
    """Each label of the guide's own that its pages link to exists."""
    assert set(re.findall(rf"\]\(({guide.label}-[\w-]*)\)", guide.text)) <= guide.labels


def test_missing_name_and_missing_target_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that no row has, and a row that points nowhere, are failures."""
    table = "| There | Here | Why |\n|---|---|---|\n| `train.py` | [](nowhere) | |\n"
    (tmp_path / "new.md").write_text(table, encoding="utf-8")
    monkeypatch.setitem(globals(), "GUIDES", tmp_path)
    monkeypatch.setitem(globals(), "TABLES", tmp_path)
    guide = Guide("new", "new.md", "new", ("examples/torchrun",), ())

    with pytest.raises(AssertionError):
        test_what_the_older_guide_names_has_a_successor(guide, "other.py")
    with pytest.raises(AssertionError, match="nowhere"):
        test_successor_exists(guide, *guide.successors()[0])


def test_columns_of_metrics_are_explained() -> None:
    """Each column of the gloo guide's metrics.csv has its row on the page."""
    code = (ROOT / "examples" / "gloo_ddp" / "full" / "result_files.py").read_text(encoding="utf-8")
    columns = re.findall(r'"(\w+)"', code.split("METRICS = (")[1].split(")")[0])
    page = (GUIDES / "gloo-ddp" / "full.md").read_text(encoding="utf-8")
    section = page.split("(gloo-ddp-metrics)=")[1].split("(gloo-ddp-verify)=")[0]

    assert len(columns) == 11
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == columns
