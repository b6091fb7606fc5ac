"""An import loads what it needs, and `import srunbook` next to nothing."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

import pytest

HEAVY = {"jax", "torch", "numpy", "scipy", "matplotlib", "lightning", "orbax"}
"""What costs a noticeable part of a second, or comes with an extra only."""

PLAIN = ("slurm", "ranklog", "script", "simulate", "verify")
"""Rooms that get by with the standard library."""

LIGHT = (*PLAIN, "adapt", "cluster", "distributed", "generate", "measurements", "sites", "cli")
"""Rooms that bring no framework."""

COMMANDS = ("adapt", "cluster", "generate", "simulate", "verify")
"""The subcommands."""


@cache
def loaded_by(statement: str) -> frozenset[str]:
    """Return the names of the modules that a statement loads into a fresh interpreter."""
    code = f"import sys\nbefore = set(sys.modules)\n{statement}\nprint(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return frozenset(done.stdout.split())


def packages(modules: frozenset[str]) -> set[str]:
    """Return the names of their packages."""
    return {name.partition(".")[0] for name in modules}


@pytest.mark.parametrize("name", [*LIGHT, *(f"cli.{command}" for command in COMMANDS)])
def test_import_is_light(name):
    """The plain rooms and the command import no framework."""
    assert packages(loaded_by(f"import srunbook.{name}")) & HEAVY == set()


@pytest.mark.parametrize("name", PLAIN)
def test_import_of_the_standard_library_alone(name):
    """Rooms that read what Slurm and ranks say import the standard library only."""
    assert packages(loaded_by(f"import srunbook.{name}")) <= {"srunbook", *sys.stdlib_module_names}


@pytest.mark.parametrize("name", ["slurm", "ranklog", "script"])
def test_a_room_below_all_others(name):
    """The rooms that lie below all others import none of them; what reads files lies below every room."""
    own = {module for module in loaded_by(f"import srunbook.{name}") if module.startswith("srunbook")}

    assert {module for module in own if not module.startswith(f"srunbook.{name}")} <= {
        "srunbook",
        "srunbook._files",
        "srunbook._text",
    }


def test_import_of_the_package_alone():
    """The package by itself takes milliseconds: it loads nothing else."""
    assert loaded_by("import srunbook") <= {"srunbook", "__future__"}


def test_help_imports_no_subcommand():
    """`srunbook --help` imports none of the rooms."""
    modules = loaded_by("from srunbook.cli import main; main(['--help'], standalone_mode=False)")

    assert {name for name in modules if name.startswith("srunbook")} == {
        "srunbook",
        "srunbook.cli",
        "srunbook.cli._main",
    }


def test_the_check_sees_a_heavy_import():
    """An import of numpy is seen: the checks above can fail."""
    pytest.importorskip("numpy")

    assert "numpy" in packages(loaded_by("import numpy")) & HEAVY
