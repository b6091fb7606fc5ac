"""Files of the page about containers that cannot run here: the words of their commands, with a stand-in for srun."""

from __future__ import annotations

import os
import subprocess
import tomllib
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize("engine", ["podman_hpc.sh", "shifter.sh", "sarus.sh", "container_engine.sh"])
def test_words_stay_whole(engine, tmp_path):
    """In a folder with a blank in its name, each option stays one word, and the program comes last."""
    folder = tmp_path / "my run"
    folder.mkdir()
    done = subprocess.run(
        ["bash", "-euc", 'srun() { printf "%s\\n" "$@"; }; source "$0"', EXAMPLES / "containers" / engine],
        cwd=folder,
        env={**os.environ, "SLURM_CPUS_PER_TASK": "4"},
        capture_output=True,
        text=True,
        check=True,
    )
    words = done.stdout.splitlines()

    assert words[-2:] == ["python", "data_parallel.py"]
    assert all(f"{folder}" in word for word in words if "/my" in word)
    assert engine == "shifter.sh" or any(f"{folder}" in word for word in words)


def test_settings_are_toml():
    """Both files are TOML, and so are the lines that a reader may take out of their comment."""
    read = [
        (EXAMPLES / name).read_text(encoding="utf-8") for name in ("containers/jax.toml", "environments/pyproject.toml")
    ]
    before, build = read[1].split("default one\n")

    assert tomllib.loads(read[0])["workdir"] == "${PWD}"
    assert tomllib.loads(before + "\n" + build.replace("# ", "").replace("#", ""))["tool"]["uv"]["sources"]["torch"]
