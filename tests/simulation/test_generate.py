"""The program generate_slurm_script.py and its configurations: what they print, and that what they print runs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from srunbook import generate
from srunbook.cli.generate import command
from srunbook.ranklog import RankEnd, parse_rank_lines

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

STAND_INS = {
    "scontrol": 'test "$*" = "show hostnames $SLURM_JOB_NODELIST" && printf "127.0.0.%d\\n" 1 2',
    "srun": 'while [[ "$1" == --* ]]; do shift; done\n'
    'exec srunbook simulate --nodes 2 --ntasks-per-node "$TASKS" -- "$@"',
}


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_output(reader: Any, name: str) -> None:
    """What the page shows is what the program prints, line for line."""
    (source,) = [path for path in (PROGRAM, *CONFIGURATIONS) if path.name == name]
    run = reader.run(PROGRAM, f"python {PROGRAM.name} {RECORDED[name]}", beside=[source])

    assert run.status == 0
    reader.compare(source, run, keep=lambda _line: True, masks=[])


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


@pytest.mark.parametrize(
    ("framework", "program", "processes"),
    [
        pytest.param("jax", "examples/jax_multinode/allreduce_modern.py", 1, marks=pytest.mark.full),
        ("jax", "examples/jax_multinode/allreduce_modern.py", 2),
        pytest.param("torchrun", "tests/support/torch_ranks.py", 2, marks=pytest.mark.full),  # also on a real Slurm
        pytest.param("torchrun", "examples/torchrun/full/train_distributed.py", 2, marks=pytest.mark.full),
    ],
)
def test_rendered_script_runs(framework: str, program: str, processes: int, tmp_path: Path) -> None:
    """With the simulation in place of srun, every rank of a rendered script starts, meets the others and ends."""
    for name, text in STAND_INS.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/bash\n{text}\n", encoding="utf-8")
        path.chmod(0o755)
    for path in (ROOT / program).parent.glob("*.py") if "train" in program else [ROOT / program]:
        shutil.copy(path, tmp_path)
    environ = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"}
    made = subprocess.run(
        [
            *(sys.executable, PROGRAM, "--framework", framework, "--script", Path(program).name),
            *("--set", "nodes=2", "--set", "cpus_per_node=4", "--set", f"processes_per_node={processes}"),
            *(["--", "--epochs=1"] if "train" in program else []),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    job = 1000 + os.getpid() % 5000
    result = subprocess.run(
        ["bash"],
        input=made.stdout,
        cwd=tmp_path,
        env={
            **environ,
            "SLURM_JOB_ID": str(job),
            "SLURM_JOB_NAME": "x",
            "SLURM_JOB_NODELIST": "node[1-2]",
            "SLURM_JOB_NUM_NODES": "2",
            "SLURM_CPUS_PER_TASK": str(4 if framework == "torchrun" else 4 // processes),
            "TASKS": "1" if framework == "torchrun" else str(processes),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    ends = [record for record in parse_rank_lines(result.stdout.splitlines()) if isinstance(record, RankEnd)]

    assert result.returncode == 0, result.stdout + result.stderr
    assert sorted(record.rank for record in ends) == list(range(2 * processes))
    if "train" in program:
        assert re.search(r"2 x 2", result.stdout)
