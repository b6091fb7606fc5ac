"""The guide *When it does not fit* on one real GPU: NCCL in place of gloo, and the losses of DDP."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from srunbook import simulate

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "does_not_fit"
PROGRAMS = (
    *("fsdp.py", "hsdp.py", "tensor_parallel.py", "fsdp_tp.py", "context_parallel.py", "pipeline.py", "less_memory.py"),
    *("resume.py", "requeue.py"),
)

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1")


def losses(program: str, *launcher: str) -> list[float]:
    """Train on the GPU as one process; return the losses."""
    command = [sys.executable, *launcher, EXAMPLES / program]
    result = simulate.run(command, nodes=1, gpus_per_node=1, timeout=110, env={"JAX_PLATFORMS": "cuda"})
    assert result.returncode == 0, result.failure
    assert re.search(r"rank 0/1 start .*device=cuda:0", result.output)
    assert "warning: " not in result.output
    return [float(loss) for loss in re.findall(r"loss ([\d.]+)", result.output)]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """Losses of DDP."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("ddp"))
        return losses("ddp.py", *TORCHRUN)


@pytest.mark.needs_gpu("torch")
@pytest.mark.parametrize("program", PROGRAMS)
def test_pytorch_program_learns_as_ddp(
    program: str, expected: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program takes the GPU, and has the losses of DDP up to the two digits of bfloat16."""
    monkeypatch.chdir(tmp_path)

    assert len(expected) == 4
    assert losses(program, *TORCHRUN) == pytest.approx(expected, rel=0.02)


@pytest.mark.needs_gpu("jax", "optax", "orbax")
@pytest.mark.parametrize("program", ["sharded_jax.py", "resume_jax.py"])
def test_jax_program_learns(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of JAX takes the GPU, and its loss falls."""
    monkeypatch.chdir(tmp_path)
    found = losses(program)

    assert found[-1] < 0.8 * found[0]
