"""One job script with four environments: what differs between them, and the stand-in for conda of the test cluster."""

from __future__ import annotations

import os
import re
import subprocess
from difflib import ndiff
from pathlib import Path

import pytest

from srunbook.cli import _checkout

ROOT = Path(__file__).resolve().parents[2]

VENV = {"torchrun/ddp": "torch-env", "jax_multinode/data_parallel": "jax-env"}
PYTHON = 'python "${@:-data_parallel.py}"'
VARIANTS = {
    "torchrun/ddp_conda": ("torchrun/ddp", ['source "$HOME/miniforge3/bin/activate" torch-env'], []),
    "torchrun/ddp_modules": ("torchrun/ddp", ["module purge", "module load pytorch/2.13"], []),
    "jax_multinode/data_parallel_container": (
        "jax_multinode/data_parallel",
        ["module load dl jax/23.10-sif", 'image="$JAX_IMAGE"', "export PYTHONNOUSERSITE=1"],
        [PYTHON, f'singularity run --nv "$image" {PYTHON}'],
    ),
}
"""Each variant with the script it changes, the lines it has before srun, and the words that it changes after it."""


def script(name: str) -> Path:
    return ROOT / "slurm" / f"{name}.sbatch"


def commands(text: str) -> list[str]:
    """Return the directives and commands of a job script; what follows two spaces and a # is a comment."""
    lines = [line for line in text.splitlines() if line.startswith("#SBATCH") or not line.startswith("#")]
    return [line if line.startswith("#SBATCH") else line.partition("  #")[0].strip() for line in lines]


def changed(earlier: str, later: str) -> tuple[list[str], list[str]]:
    """Return the commands that only the earlier script has, and those that only the later one has."""
    lines = [line for line in ndiff(commands(earlier), commands(later)) if line[:2] in ("- ", "+ ")]
    return tuple([line[2:] for line in lines if line.startswith(sign)] for sign in "-+")  # type: ignore[return-value]


@pytest.mark.parametrize("name", VARIANTS)
def test_scripts_differ_in_their_environment_alone(name):
    """A variant has other lines before srun, and a container other words after it, as the page says."""
    base, before, after = VARIANTS[name]
    removed, added = changed(script(base).read_text(encoding="utf-8"), script(name).read_text(encoding="utf-8"))

    assert removed == [f'source "$HOME/{VENV[base]}/bin/activate"', *after[:1]]
    assert added == [*before, *after[1:]]


@pytest.mark.parametrize("name", VARIANTS)
def test_lines_that_a_site_changes_say_so(name):
    """Each line that chooses the environment is marked, apart from the one that unloads modules."""
    lines = script(name).read_text(encoding="utf-8").splitlines()
    chosen = [line for line in lines if line.startswith(("source ", "module load ", "image="))]

    assert chosen
    assert [line for line in chosen if "  # EDIT: " not in line] == []


def test_the_table_of_the_page_has_the_lines_of_the_scripts():
    """What the page says to write is what the scripts have."""
    page = (ROOT / "docs" / "start" / "environments.md").read_text(encoding="utf-8")
    rows = page.partition("| Before `srun` |")[2].partition("\n\n")[0].splitlines()[2:]
    told = [re.findall(r"`([^`]+?)(?: ?\.\.\.)?`", row) for row in rows]
    texts = [script(name).read_text(encoding="utf-8") for name in ("torchrun/ddp", *VARIANTS)]

    assert len(told) == len(texts)
    for words, text in zip(told, texts, strict=True):
        assert [word for word in words if word not in text and word != "python"] == []


def source(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Source the stand-in as a strict job script does, and print which python comes first then."""
    activate = home / _checkout.CONDA
    activate.parent.mkdir(parents=True)
    activate.write_text(_checkout.provision().files[_checkout.CONDA], encoding="utf-8")
    for environment in ("torch-env", "jax-env"):
        python = home / environment / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.touch(mode=0o755)
    code = 'set -euo pipefail; source "$HOME/miniforge3/bin/activate" "$@"; command -v python; echo "$CONDA_PREFIX"'
    environ = {"HOME": str(home), "PATH": os.environ["PATH"]}
    return subprocess.run(["bash", "-c", code, "bash", *arguments], env=environ, capture_output=True, text=True)


def test_the_stand_in_activates_the_environment_of_that_name(tmp_path):
    """The Python of the environment that was named comes first, also in a script that is strict."""
    result = source(tmp_path, "jax-env")

    assert result.stdout == f"{tmp_path}/jax-env/bin/python\n{tmp_path}/jax-env\n"
    assert result.stderr == ""


@pytest.mark.parametrize("arguments", [("torch",), ()], ids=["typo", "none"])
def test_the_stand_in_refuses_another_name(tmp_path, arguments):
    """A name that no environment has ends a strict script with conda's message."""
    result = source(tmp_path, *arguments)

    assert result.returncode == 1
    assert "EnvironmentNameNotFound: Could not find conda environment: " in result.stderr
    assert result.stdout == ""
