"""The fixture for tests of other projects, in a folder that holds nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.published import cluster_name

from srunbook import cluster

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "clusters" / "test_job.py"


def test_the_fixture(generation: str, pytestconfig: pytest.Config, tmp_path: Path) -> None:
    """The published test passes on its own cluster, and takes it down."""
    name = cluster_name(pytestconfig, "own")
    text = EXAMPLE.read_text(encoding="utf-8").replace('"tests"', f'"{name}"')
    (tmp_path / EXAMPLE.name).write_text(text.replace("nodes=2)", f'nodes=2, slurm="{generation}")'), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", EXAMPLE.name], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    left = cluster.down(name)

    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
    assert not left
