"""The JAX guide on one real GPU: which device a process takes, NCCL in place of gloo, and memory."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from srunbook import simulate
from srunbook.ranklog import RankStart, parse_rank_lines
from srunbook.simulate import Result

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "jax_multinode"
FAILURES = ROOT / "examples" / "failures"

pytestmark = pytest.mark.needs_gpu("jax")


def on_gpu(program: Path, *arguments: str, platforms: str = "cuda", **environ: str) -> Result:
    """Run a program as one task of a node with one GPU."""
    command = [sys.executable, program, *arguments]
    return simulate.run(command, nodes=1, gpus_per_node=1, timeout=110, env={"JAX_PLATFORMS": platforms, **environ})


def test_query_finds_the_gpu() -> None:
    """A process with one GPU has it as its local device, and says so when it starts."""
    result = on_gpu(EXAMPLES / "query_v1.py")

    assert result.returncode == 0, result.failure
    assert re.search(r"# Local devices: \[ 1 \], \[CudaDevice\(id=0\)\]", result.output)
    start = parse_rank_lines(result.output.splitlines())[0]
    assert isinstance(start, RankStart)
    assert start.device == "cuda:0"


def test_query_v2_passes_the_number_of_the_gpu() -> None:
    """One task on a node with one GPU takes number 0, and JAX opens it."""
    result = on_gpu(EXAMPLES / "query_v2.py")

    assert result.returncode == 0, result.failure
    assert "# GPU numbers of this process: [0]" in result.output
    assert "# Local devices: [ 1 ], [CudaDevice(id=0)]" in result.output


def test_number_of_a_gpu_that_is_not_there_is_an_error() -> None:
    """Device ids have an effect on a GPU: number 1 of one GPU does not exist."""
    result = on_gpu(EXAMPLES / "query_v1.py", JAX_LOCAL_DEVICE_IDS="7")

    assert result.returncode != 0
    assert "invalid device ordinal" in result.output or "No visible" in result.output or "Unable to" in result.output


@pytest.mark.parametrize("program", ["allreduce.py", "allreduce_modern.py", "draw_owners.py"])
def test_program_runs(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of the guide runs on one GPU without an edit."""
    monkeypatch.chdir(tmp_path)
    result = on_gpu(EXAMPLES / program)

    assert result.returncode == 0, result.failure
    expected = {"allreduce.py": "has y=[1.]", "allreduce_modern.py": "has y=1.0 with jit"}
    assert expected.get(program, "rank 0/1 end") in result.output


def test_training_on_a_gpu_equals_training_on_a_cpu() -> None:
    """The losses on a GPU are those on a CPU, up to the precision of its matrix products."""
    runs = [on_gpu(EXAMPLES / "train_data_parallel.py", platforms=name) for name in ("cuda", "cpu")]
    losses = [np.array(re.findall(r"loss (\S+)", run.output), float) for run in runs]

    assert all(run.returncode == 0 for run in runs)
    assert len(losses[0]) == len(losses[1]) > 0
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-2)


def test_batch_that_no_gpu_holds_is_refused() -> None:
    """A batch larger than the memory of the GPU ends with RESOURCE_EXHAUSTED."""
    result = on_gpu(FAILURES / "jax-out-of-memory" / "broken.py")

    assert result.returncode != 0
    assert "RESOURCE_EXHAUSTED" in result.output


def test_fraction_limits_the_memory_that_jax_may_use() -> None:
    """Half of XLA_CLIENT_MEM_FRACTION is half of the limit, with and without preallocation."""
    code = "import jax; print('limit', jax.local_devices()[0].memory_stats()['bytes_limit'])"

    def limit(fraction: str, preallocate: str) -> int:
        result = simulate.run(
            [sys.executable, "-c", code],
            nodes=1,
            gpus_per_node=1,
            env={
                "JAX_PLATFORMS": "cuda",
                "XLA_CLIENT_MEM_FRACTION": fraction,
                "XLA_PYTHON_CLIENT_PREALLOCATE": preallocate,
            },
        )
        assert result.returncode == 0, result.failure
        found = re.search(r"limit (\d+)", result.output)
        assert found is not None
        return int(found[1])

    for preallocate in ("true", "false"):
        assert limit("0.4", preallocate) / limit("0.2", preallocate) == pytest.approx(2, rel=0.01)
