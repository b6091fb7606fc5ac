"""The form of the job scripts, and the requirements of their programs. tests/unit/test_job_scripts.py runs them."""

from __future__ import annotations

import re
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
ALL = sorted((ROOT / "slurm").glob("*/*.sbatch"))
TEXTS = {path: path.read_text(encoding="utf-8") for path in ALL}
WRITTEN = [path for path, text in TEXTS.items() if "# Made by: " not in text and "\nsrun " in text]
"""The scripts that start ranks and whose lines a reader edits; `srunbook generate` makes others."""

SITE = ("partition", "account", "nodes", "cpus-per-task", "mem", "time")
"""Directives that depend on the site."""


@pytest.mark.parametrize("script", WRITTEN, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_script_has_the_form_of_one(script: Path) -> None:
    """A job script has its directives before any command, fails early, and marks what depends on the site."""
    lines = script.read_text(encoding="utf-8").splitlines()
    first_command = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))
    directives, commands = lines[:first_command], lines[first_command:]
    marked = [line for line in directives if "# EDIT" in line]

    assert lines[0] == "#!/bin/bash"
    assert commands[0] in ("set -e", "set -eo pipefail")
    assert not any(line.startswith("#SBATCH") for line in commands)
    site = [at for at, line in enumerate(commands) if line.startswith(("module ", "source "))]
    assert [at for at, line in enumerate(commands) if line.startswith("set -u")] > site[-1:]
    assert any(line.startswith("#SBATCH --ntasks-per-node=") for line in directives)
    for name in SITE:
        assert sum(line.startswith(f"#SBATCH --{name}=") for line in marked) == 1, name
    assert not [line for line in directives if re.match("#SBATCH --(gpus-per-node|gres)=", line) and line not in marked]
    assert any("# EDIT" in line for line in commands)  # where Python comes from
    assert not any(re.search(r"--(output|error)=.*/", line) for line in directives)  # a folder there may be missing
    assert not any(re.match(r"\s*(export )?(RANK|LOCAL_RANK)=", line) for line in commands)  # those of the batch shell


def test_ports_of_jobs_stay_out_of_the_systems_range() -> None:
    """The port lies below those that Linux hands out by itself, and neighbouring jobs have different ones."""
    lines = [line.strip() for path in WRITTEN for line in path.read_text(encoding="utf-8").splitlines()]
    (formula,) = {line.split("#")[0].strip() for line in lines if re.match(r"PORT=.*SLURM_JOB_ID", line)}
    code = f'for SLURM_JOB_ID in "$@"; do {formula}; echo $PORT; done'
    jobs = [1, 6999, 7000, 7001, 4294967295]
    ports = subprocess.run(["bash", "-c", code, "-", *map(str, jobs)], capture_output=True, text=True, check=True)

    assert [int(port) for port in ports.stdout.split()] == [25001, 31999, 25000, 25001, 25000 + 4294967295 % 7000]


@pytest.mark.parametrize(
    "path", sorted((ROOT / "examples").glob("*/requirements.txt")), ids=lambda path: path.parent.name
)
def test_requirements_are_what_was_tested(path: Path) -> None:
    """The requirements of a guide ask for releases that the installed ones belong to."""
    for line in path.read_text(encoding="utf-8").split():
        requirement = Requirement(line)
        assert requirement.specifier.contains(version(requirement.name).split("+")[0]), line
