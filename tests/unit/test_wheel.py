"""The wheel works in an empty environment, without a checkout."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from support.wheel import Installed

ROOT = Path(__file__).resolve().parents[2]

CORE = ("slurm", "ranklog", "signals", "simulate", "sites", "generate", "verify")
CORE += ("cluster", "cli")
"""Rooms that need no extra."""

WITH_JAX = ("distributed", "svgd", "phase_type")
"""Rooms that need the extra `jax`."""

GREETING = "import os\nprint('rank', os.environ['SLURM_PROCID'], 'of', os.environ['SLURM_NTASKS'])\n"


@pytest.fixture(scope="module")
def core(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Install the wheel without an extra."""
    return Installed(tmp_path_factory.mktemp("core"), str(wheel))


def test_data_is_in_the_wheel(wheel):
    """The wheel has the entries of `srunbook explain`, and the file by which mypy and editors know of type hints."""
    assert {"srunbook/py.typed", "srunbook/explain/entries.json"} <= {*zipfile.ZipFile(wheel).namelist()}
    assert "`py.typed`" in (ROOT / "docs" / "reference" / "index.md").read_text(encoding="utf-8")


def test_simulate(core):
    """`srunbook simulate` starts two ranks."""
    (core.here / "hello.py").write_text(GREETING)
    done = core.run("srunbook", "simulate", "--nodes", "1", "--ntasks-per-node", "2", "--", "python", "hello.py")

    assert done.returncode == 0, done.stderr
    assert {"rank 0 of 2", "rank 1 of 2"} <= {line.split("] ")[-1].split(": ")[-1] for line in done.stdout.splitlines()}


def test_generate(core):
    """`srunbook generate` writes a script for a site, so the template and the sites are in the wheel."""
    done = core.run("srunbook", "generate", "--profile", "small", "--cluster", "raven", "--script", "train.py")

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("#!/bin/bash\n#")


def test_rooms_without_an_extra(core):
    """The rooms of the core import where no framework is installed, and bring none."""
    core.imports(*CORE)

    assert core.run("python", "-c", "import numpy").returncode != 0


@pytest.mark.full  # JAX takes half a minute to install
def test_rooms_with_jax(wheel, tmp_path):
    """The other rooms import where only their extra is installed."""
    Installed(tmp_path, f"srunbook[jax] @ {wheel.as_uri()}").imports(*WITH_JAX)
