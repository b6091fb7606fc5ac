"""The program generate_slurm_script.py and its configurations: what they print. It runs in tests/cluster."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from srunbook import generate
from srunbook.cli.generate import command

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "examples" / "generate_slurm_script.py"
CONFIGURATIONS = sorted((ROOT / "examples" / "slurm_configs").glob("*.yaml"))

RECORDED = {
    "generate_slurm_script.py": "--profile small --script train.py -- --epochs 3",
    "my_cluster.yaml": "--config my_cluster.yaml --script my_svgd.py",
    "production.yaml": "--list-profiles",
    "raven.yaml": "--config raven.yaml --script train.py --explain",
}
"""Arguments whose output stands on a page, by the file that it stands under."""


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_output(reader: Any, name: str) -> None:
    """What the page shows is what the program prints, line for line."""
    (source,) = [path for path in (PROGRAM, *CONFIGURATIONS) if path.name == name]
    run = reader.run(PROGRAM, f"python {PROGRAM.name} {RECORDED[name]}", beside=[source])

    assert run.exit_code == 0
    reader.compare(source, replace(run, source_sha256=hashlib.sha256(source.read_bytes()).hexdigest()))


def test_recorded_command_is_that_of_the_docstring(reader: Any) -> None:
    """The program's docstring begins with the command whose output is recorded."""
    assert reader.commands(PROGRAM)[0] == f"python {PROGRAM.name} {RECORDED[PROGRAM.name]}"


def test_configurations_make_clean_scripts(tmp_path: Path) -> None:
    """Each example makes a script that shellcheck has nothing to say about; svgd.yaml wants its size by --set."""
    scripts = []
    for path in CONFIGURATIONS:
        size = ["--set", "nodes=2", "--set", "cpus_per_node=4"] if path.stem == "svgd" else []
        scripts.append(tmp_path / f"{path.stem}.sbatch")
        options = ["--config", str(path), "--script", "train.py", *size, "--output", str(scripts[-1])]
        made = CliRunner().invoke(command, options)

        assert (made.exit_code, made.stdout, made.stderr) == (0, "", ""), path.name
    excluded = "--exclude=SC1090,SC1091"  # the environments that scripts activate exist on a site alone
    shellcheck = [Path(sys.executable).with_name("shellcheck"), "--shell=bash", excluded, *scripts]

    assert subprocess.run(shellcheck, capture_output=True, text=True, check=False).stdout == ""


@pytest.mark.parametrize("path", CONFIGURATIONS, ids=lambda path: path.stem)
def test_configuration_tells_editors_of_its_schema(path: Path) -> None:
    """Each example begins with the line by which editors find the schema, and fits the schema."""
    first = path.read_text(encoding="utf-8").splitlines()[0]
    published = json.loads((ROOT / "docs" / "_static" / "job.schema.json").read_text(encoding="utf-8"))

    assert first == f"# yaml-language-server: $schema={generate.SCHEMA_URL}"
    assert list(jsonschema.Draft202012Validator(published).iter_errors(generate.read_config(path).values)) == []
