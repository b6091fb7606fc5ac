"""Known sites: one file each, which the command, its help, its messages and the schema know by being there."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from srunbook import sites

FOLDER = Path(sites.__file__).parent


@pytest.mark.parametrize("name", sites.names())
def test_site_says_what_it_assumes(name):
    """The file of a site begins with a comment that names the site and what is assumed of it."""
    text = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")

    assert text.startswith("# ")
    assert "assumed" in text.lower()


def test_values_cannot_be_changed():
    """What one caller does to the values of a site does not reach the next."""
    with pytest.raises(TypeError):
        sites.read("raven")["nodes"] = 2


@pytest.mark.parametrize("name", ["Raven", "", "../sites/raven", "__init__"])
def test_unknown_site(name):
    """A name that is not that of a site is refused, and the message has those that there are."""
    with pytest.raises(ValueError, match=r"no known site .*; there are crusoe-like, generic"):
        sites.read(name)


def test_new_site_takes_one_file(tmp_path):
    """A file more is a site more: in --help, --schema, messages and scripts."""
    shutil.copytree(FOLDER.parent, tmp_path / "srunbook", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "srunbook" / "sites" / "here.yaml").write_text("partition: long\n", encoding="utf-8")

    def said(*arguments: str) -> str:
        program = "from srunbook.cli import main; main()"
        command = [sys.executable, "-c", program, "generate", *arguments]
        result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        return result.stdout + result.stderr

    small = ("--profile", "small", "--script", "train.py")

    assert "generic, here, ibex" in said("--help")
    assert "here" in json.loads(said("--schema"))["properties"]["cluster"]["anyOf"][0]["enum"]
    assert "Did you mean here?" in said(*small, "--cluster", "heer")
    assert "#SBATCH --partition=long\n" in said(*small, "--cluster", "here")
