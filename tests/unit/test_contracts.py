"""Who may import whom: the contracts in pyproject.toml hold, and what breaks them is found."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Copy the library and its contracts."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def linted(root: Path) -> tuple[int, str]:
    """Check the contracts in a folder; return the exit status and what was printed."""
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache", "--no-logo"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_contracts_hold():
    """The library keeps them."""
    status, said = linted(ROOT)

    assert status == 0, said


@pytest.mark.parametrize(
    ("file", "line", "complaint"),
    [
        ("verify/_report.py", "import srunbook.simulate", "srunbook.verify._report -> srunbook.simulate"),
        ("slurm/_step.py", "def late():\n    from srunbook import cli", "srunbook.slurm._step -> srunbook.cli"),
        ("slurm/_errors.py", "import srunbook.slurm._hostlist", "._hostlist -> ._errors"),
    ],
    ids=["another room", "the command, within a function", "a circle of two files"],
)
def test_what_breaks_them_is_found(copy, file, line, complaint):
    """A forbidden import is named, also one within a function, and so is a circle."""
    path = copy / "src" / "srunbook" / file
    path.write_text(f"{path.read_text()}\n\n{line}\n")
    status, said = linted(copy)

    assert status == 1
    assert complaint in said


def test_every_room_has_a_contract():
    """No room is left out of the contracts."""
    text = (ROOT / "pyproject.toml").read_text()
    rooms = [path.parent.name for path in (ROOT / "src" / "srunbook").glob("*/__init__.py")]

    assert [room for room in rooms if f'"srunbook.{room}"' not in text.partition("[tool.importlinter]")[2]] == []
