"""What an import loads."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("jax", "torch", "pydantic", "numpy", "matplotlib", "lightning")


def modules(statement: str) -> set[str]:
    """Names of the modules that a fresh interpreter has after a statement."""
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def loaded_by(statement: str) -> set[str]:
    """Names of the heavy modules that a statement loads."""
    return modules(statement) & set(HEAVY)


@pytest.mark.parametrize(
    "module",
    [
        *("srunbook", "srunbook.slurm", "srunbook.simulate", "srunbook.formats", "srunbook.verify", "srunbook.scaling"),
        *("srunbook.cli.simulate", "srunbook.cli.verify", "srunbook.distributed"),
    ],
)
def test_import_is_light(module):
    """Importing the package, its plain rooms and the command loads no framework."""
    loaded = loaded_by(f"import {module}")

    assert loaded == set()


def test_import_of_the_package_alone():
    """The package by itself loads nothing else."""
    assert modules("import srunbook") - modules("pass") <= {"srunbook", "__future__"}


def test_the_check_sees_a_heavy_import():
    """An import of numpy is seen, so the check above can fail."""
    pytest.importorskip("numpy")

    assert "numpy" in loaded_by("import numpy")
