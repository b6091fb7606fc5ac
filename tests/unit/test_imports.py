"""Who may import whom, and what an import loads."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

HEAVY = {"jax", "torch", "numpy", "scipy", "matplotlib", "lightning", "orbax"}
"""What costs a noticeable part of a second, or comes with an extra only."""

PLAIN = ("slurm", "ranklog", "simulate", "verify")
"""Rooms that get by with the standard library."""

LIGHT = (*PLAIN, "cluster", "distributed", "generate", "sites", "cli")
"""Rooms that bring no framework."""

COMMANDS = ("cluster", "generate", "simulate", "verify")


FORBIDDEN = {
    "ranklog.py": ("import srunbook.simulate", "srunbook.ranklog -> srunbook.simulate"),
    "signals.py": ("def late():\n    from srunbook import cli", "srunbook.signals -> srunbook.cli"),
    "slurm/hostlist.py": ("import srunbook.slurm.step", "No circle between files BROKEN"),
}
"""Imports of another room, of the command within a function, and in a circle of two files."""


def test_forbidden_imports_are_found(tmp_path):
    """The contracts in pyproject.toml, which `nox -s lint` checks, name each forbidden import."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for file, (line, _) in FORBIDDEN.items():
        with (tmp_path / "src" / "srunbook" / file).open("a") as source:
            source.write(f"\n\n{line}\n")
    lint = [Path(sys.executable).with_name("lint-imports"), "--no-cache", "--no-logo"]
    environ = {**os.environ, "PYTHONPATH": str(tmp_path / "src")}
    done = subprocess.run(lint, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert [complaint for _, complaint in FORBIDDEN.values() if complaint not in done.stdout + done.stderr] == []


def test_every_room_has_a_contract():
    """No room is left out of the contracts."""
    contracts = (ROOT / "pyproject.toml").read_text().partition("[tool.importlinter]")[2]
    rooms = [path.parent.name for path in (ROOT / "src" / "srunbook").glob("*/__init__.py")]

    assert [room for room in rooms if f'"srunbook.{room}"' not in contracts] == []


def loaded_by(statement: str) -> set[str]:
    """Return the names of the modules that a statement loads into a fresh interpreter."""
    code = f"import sys\nbefore = set(sys.modules)\n{statement}\nprint(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {*done.stdout.split()}


@pytest.mark.parametrize("name", [*LIGHT, *(f"cli.{command}" for command in COMMANDS)])
def test_import_is_light(name):
    """The plain rooms and the command import no framework, and plain rooms the standard library alone."""
    found = {module.partition(".")[0] for module in loaded_by(f"import srunbook.{name}")}

    assert found & HEAVY == set()
    assert name not in PLAIN or found <= {"srunbook", *sys.stdlib_module_names}


def test_import_of_the_package_alone():
    """The package by itself takes milliseconds: it loads nothing else."""
    assert loaded_by("import srunbook") <= {"srunbook", "__future__"}


def test_help_imports_no_subcommand():
    """`srunbook --help` imports none of the rooms."""
    modules = loaded_by("from srunbook.cli import main; main(['--help'], standalone_mode=False)")

    assert {name for name in modules if name.startswith("srunbook")} <= {"srunbook", "srunbook.cli"}
