"""SVGD on one real GPU: a step beside its exponentials and products by themselves.

`--record` keeps the samples in bench/results/svgd_gpu.json.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RESULT = ROOT / "bench" / "results" / "svgd_gpu.json"


def environment() -> dict[str, str]:
    """Return the environment without what would hide a GPU from JAX."""
    return {name: value for name, value in os.environ.items() if name != "JAX_PLATFORMS"}


pytestmark = pytest.mark.needs_gpu("jax", "optax")


@pytest.mark.timeout(300)
def test_a_step_is_measured_beside_its_parts(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """The benchmark runs on the GPU, and keeps samples of a step and of its parts by themselves."""
    path = RESULT if pytestconfig.getoption("--record", default=False) else tmp_path / "svgd_gpu.json"
    command = [sys.executable, ROOT / "bench" / "svgd_speed.py", "--particles=16384", "--dimensions=16"]
    subprocess.run([*command, f"--output={path}"], env=environment(), check=True)
    measurement = json.loads(path.read_text(encoding="utf-8"))  # read_measurement needs pydantic

    assert "device" in measurement["machine"]
    assert {"step_ms", "parts_ms"} <= set(measurement["configurations"][0]["samples"])
