"""The section *Performance* on one real GPU: MFU, and traces of kernels."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from srunbook import simulate

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "performance"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.needs_gpu("torch")
@pytest.mark.parametrize("name", ["throughput.py", "throughput_gpt.py"])
def test_mfu_is_printed(name: str) -> None:
    """A program prints its MFU, more than nothing and less than all."""
    result = simulate.run([*TORCHRUN, EXAMPLES / name], gpus_per_node=1, timeout=110)

    assert result.returncode == 0, result.failure
    assert 0 <= float(re.findall(r"MFU ([\d.]+)%", result.output)[0]) < 100


@pytest.mark.needs_gpu("jax")
def test_mfu_of_jax_is_printed() -> None:
    """The same with JAX."""
    result = simulate.run([sys.executable, EXAMPLES / "throughput_jax.py"], gpus_per_node=1, timeout=110)

    assert result.returncode == 0, result.failure
    assert 0 <= float(re.findall(r"MFU ([\d.]+)%", result.output)[0]) < 100


@pytest.mark.needs_gpu("torch", "matplotlib")
@pytest.mark.parametrize("name", ["profiled.py", "slow.py"])
def test_trace_of_kernels_is_read(name: str, folder: Path) -> None:
    """The parts of a step are as long as the step, and each step has computed."""
    result = simulate.run([*TORCHRUN, EXAMPLES / name], gpus_per_node=1, timeout=110)
    assert result.returncode == 0, result.failure
    assert '"kernel"' in next(folder.glob("trace-*/rank-0.json")).read_text(encoding="utf-8")
    rows = read_parts(folder)

    assert rows[0] > 0
    assert sum(rows[:-1]) == pytest.approx(rows[-1], abs=0.1)


@pytest.mark.needs_gpu("jax", "matplotlib")
def test_trace_of_jax_is_read(folder: Path) -> None:
    """The same with JAX."""
    result = simulate.run([sys.executable, EXAMPLES / "profiled_jax.py"], gpus_per_node=1, timeout=110)
    assert result.returncode == 0, result.failure

    assert read_parts(folder)[0] > 0


def read_parts(folder: Path) -> list[float]:
    """Return the milliseconds of the parts of rank 0's step, and of the step."""
    (traces,) = folder.glob("trace-*")
    printed = subprocess.run(
        [sys.executable, EXAMPLES / "time_parts.py", traces], capture_output=True, text=True, check=True
    ).stdout
    return [float(cell) for cell in printed.splitlines()[1].split()[1:]]
