"""Which GPUs a process of `query_v2.py` takes, from the environments that Slurm gives."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "examples" / "jax_multinode" / "query_v2.py"


@pytest.fixture(scope="module")
def query_v2() -> ModuleType:
    """Import the program as a module; importing it starts nothing."""
    spec = importlib.util.spec_from_file_location("query_v2", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FOUR = {"SLURM_GPUS_ON_NODE": "4", "CUDA_VISIBLE_DEVICES": "0,1,2,3"}


@pytest.mark.parametrize(
    ("environ", "ids"),
    [
        ({**FOUR, "SLURM_STEP_TASKS_PER_NODE": "1(x2)"}, [0, 1, 2, 3]),
        ({**FOUR, "SLURM_STEP_TASKS_PER_NODE": "2(x2)", "SLURM_NODEID": "1", "SLURM_LOCALID": "1"}, [2, 3]),
        # the last node of an unequal layout counts its own tasks
        ({**FOUR, "SLURM_STEP_TASKS_PER_NODE": "4(x2),2", "SLURM_NODEID": "2", "SLURM_LOCALID": "1"}, [2, 3]),
        # a GPU that Slurm has bound to the task is the task's number 0
        ({"SLURM_GPUS_ON_NODE": "4", "CUDA_VISIBLE_DEVICES": "3", "SLURM_LOCALID": "3"}, [0]),
        ({"SLURM_GPUS_PER_NODE": "a100:4", "SLURM_GPUS_ON_NODE": "2"}, [0, 1]),  # what was granted counts
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, []),  # Slurm's word for none
    ],
)
def test_ids(query_v2: ModuleType, environ: dict[str, str], ids: list[int]) -> None:
    """A process takes its even share of the GPUs that it sees, in the order of the local ranks."""
    assert query_v2.local_device_ids(environ) == ids


@pytest.mark.parametrize(
    ("layout", "message"),
    [("3", r"4 GPUs cannot be shared evenly by 3 tasks .* --gpus-per-node=3"), ("2x3", r"it reads like 2\(x3\),1")],
)
def test_refused(query_v2: ModuleType, layout: str, message: str) -> None:
    """Four GPUs for three tasks, and a layout that Slurm never writes, are refused with what works."""
    with pytest.raises(ValueError, match=message):
        query_v2.local_device_ids({**FOUR, "SLURM_STEP_TASKS_PER_NODE": layout})
