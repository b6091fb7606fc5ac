"""The example of `srunbook adapt`: what the page shows is what the command makes and prints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.kept import kept_in_step

from srunbook import adapt, generate

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "adapt"
PROGRAM = FOLDER / "adapt_job_script.py"
CONFIG = FOLDER / "my_cluster.yaml"
THEIRS = FOLDER / "pretrain.sh"
HERE = FOLDER / "pretrain_here.sh"


def test_adapted_example(pytestconfig: pytest.Config) -> None:
    """The adapted script on the page is what comes of the script and the configuration beside it."""
    made = adapt.adapt(THEIRS.read_bytes(), adapt.site(generate.read_config(CONFIG)))

    kept_in_step(HERE, made.data.decode(), bool(pytestconfig.getoption("--record")), __file__)


def test_recorded_output(reader: Any) -> None:
    """The program's first command prints what the page shows, and writes the script that the page shows."""
    run = reader.run(PROGRAM, reader.commands(PROGRAM)[0], beside=[CONFIG, THEIRS])

    assert run.status == 0
    assert (reader.folder / THEIRS.name).read_bytes() == HERE.read_bytes()
    reader.compare(PROGRAM, run, keep=lambda _line: True, masks=[])
