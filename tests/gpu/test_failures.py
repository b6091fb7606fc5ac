"""Failures that only a GPU shows: each prints the message of its entry, as the troubleshooting pages have it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from srunbook.explain import explain

MEET = "import torch, torch.distributed as dist\ndist.init_process_group('nccl')\n"
SUM = MEET + "dist.all_reduce(torch.ones(1, device='cuda:0'))\n"

TORCH = {
    "gpu-duplicate": (2, SUM),  # neither of two ranks chooses its GPU, so both take the first
    "gpu-invalid-ordinal": (1, "import torch\ntorch.cuda.set_device(torch.cuda.device_count())"),
    "gpu-out-of-memory": (1, "import torch\ntorch.empty(2**43, dtype=torch.uint8, device='cuda')"),
    "nccl-device-unknown": (1, MEET + "dist.barrier()\ndist.destroy_process_group()"),
    "nccl-not-destroyed": (1, SUM),
    "nccl-no-interface": (1, SUM),
}
"""Failures by their entry: how many ranks of one node run which program."""

ENVIRON = {"nccl-no-interface": {"NCCL_SOCKET_IFNAME": "=ib7"}}


def entries_of(command: list[str], log: Path, environ: dict[str, str]) -> set[str]:
    """Run a program that fails; return the entries that explain its output."""
    environ = {name: value for name, value in os.environ.items() if name != "JAX_PLATFORMS"} | environ
    with log.open("wb") as file:
        subprocess.run(command, cwd=log.parent, env=environ, stdout=file, stderr=subprocess.STDOUT, timeout=110)
    found = explain([str(log)]).report.diagnosis
    failures = (found.cause, *found.consequences) if found.cause else ()
    return {finding.slug for finding in (*failures, *found.warnings)}


@pytest.mark.needs_gpu("torch")
@pytest.mark.parametrize("slug", TORCH)
def test_pytorch_prints_the_message_of_the_entry(slug: str, tmp_path: Path) -> None:
    """The failure prints what the entry quotes."""
    ranks, code = TORCH[slug]
    (tmp_path / "broken.py").write_text(code, encoding="utf-8")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    log = tmp_path / "log"

    assert slug in entries_of([*launcher, "broken.py"], log, ENVIRON.get(slug, {})), log.read_text(encoding="utf-8")


@pytest.mark.needs_gpu("jax")
def test_jax_prints_the_message_of_the_entry(tmp_path: Path) -> None:
    """An array that no GPU holds prints what the entry quotes."""
    log = tmp_path / "log"
    code = "import jax\njax.numpy.ones(2**43, dtype='uint8').block_until_ready()"

    assert "jax-out-of-memory" in entries_of([sys.executable, "-c", code], log, {}), log.read_text(encoding="utf-8")
