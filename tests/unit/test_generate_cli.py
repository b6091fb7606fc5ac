"""The command `srunbook generate`: what it writes, where, and what it refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support.kept import kept_in_step, table

from srunbook import generate as library
from srunbook.cli import main
from srunbook.generate import JobSpecification

ROOT = Path(__file__).resolve().parents[2]
SMALL = ("--profile", "small", "--script", "train.py")


@pytest.fixture
def generate(tmp_path, monkeypatch):
    """Run the command in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(main, ["generate", *arguments])

    return run


def test_standard_output_is_the_script_alone(generate):
    """Standard output is the script, byte for byte what the library renders, and nothing is said beside it."""
    result = generate(*SMALL, "--", "--epochs", "3")
    values = {"profile": "small", "script": "train.py", "arguments": ["--epochs", "3"]}
    one = library.specify(library.Layer("here", values)).specification

    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == library.render(
        one, made_by="srunbook generate --profile small --script train.py -- --epochs 3"
    )


def test_line_in_the_script_makes_it_again(generate, tmp_path):
    """The command that the script names makes the same script again."""
    (tmp_path / "my file.yaml").write_text("qos: normal\nenv_vars: {A: it's}\n", encoding="utf-8")
    first = generate("--config", "my file.yaml", *SMALL, "--set", "env_vars.B=$x", "--framework=gloo", "--", "a b", "")
    (line,) = [line for line in first.stdout.splitlines() if line.startswith("# Made by: ")]
    again = subprocess.run(
        ["bash", "-c", line.removeprefix("# Made by: ")],
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert again.stdout == first.stdout


def test_output_is_written(generate, tmp_path):
    """With --output the script is in the file, and nothing is said."""
    result = generate(*SMALL, "--output", "submit.sh")

    assert (result.exit_code, result.output) == (0, "")
    assert (tmp_path / "submit.sh").read_text(encoding="utf-8") == generate(*SMALL).stdout


def test_other_files_are_kept(generate, tmp_path):
    """A file that the command did not make is not overwritten, and neither is a folder."""
    (tmp_path / "train.py").write_text("mine\n", encoding="utf-8")
    (tmp_path / "folder").mkdir()

    for name in ("train.py", "folder", "/dev/null", "/dev/stdout"):
        result = generate(*SMALL, "--output", name)
        assert result.exit_code == 2
        assert name in result.stderr
    assert (tmp_path / "train.py").read_text(encoding="utf-8") == "mine\n"


def test_standard_output_that_takes_nothing():
    """A full disk ends with status 1 and one line, and never as if all were well."""
    command = [Path(sys.executable).with_name("srunbook"), "generate", *SMALL]
    result = subprocess.run(
        ["bash", "-c", '"$@" >/dev/full', "-", *command], stderr=subprocess.PIPE, text=True, check=False
    )

    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert "No space left on device" in result.stderr


def test_output_that_cannot_be_written(generate, tmp_path, monkeypatch):
    """A failed write ends with status 1, and leaves nothing."""

    def full(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    result = generate(*SMALL, "--output", "submit.sh")

    assert result.exit_code == 1
    assert "No space left on device; nothing was written" in result.stderr
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ((), ["nodes is missing", "--profile", "no program is named"]),
        (("--config", "none.yaml", *SMALL), ["none.yaml: No such file"]),
        ((*SMALL, "--", "a\nb"), ["after --: arguments[0] is 'a\\nb'", "control character"]),
        ((*SMALL, "--explain", "--output", "a.sbatch"), ["--explain does not write a job script", "Leave out"]),
    ],
)
def test_bad_input(generate, arguments, parts):
    """Bad input ends with status 2, says what is wrong on standard error, and nothing on standard output."""
    result = generate(*arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    assert [part for part in parts if part not in result.stderr] == []


def test_many_connections_are_noted(generate):
    """Where processes have more connections than many systems allow files, standard error says so, and the way out."""
    medium = ("--profile", "medium", "--script", "train.py")
    many, fewer = generate(*medium), generate(*medium, "--set", "devices_per_process=8")
    note = "note: each process has about 1056 connections, and many systems let it open 1024 files: --set devices"

    assert note in many.stderr
    assert "connections" not in many.stdout
    assert (fewer.exit_code, fewer.stderr) == (0, "")


def test_schema_is_published(generate, pytestconfig):
    """The schema on the site is that of the model, and the one that the command shows."""
    path = ROOT / "docs" / "_static" / "job.schema.json"
    kept_in_step(path, generate("--schema").stdout, pytestconfig.getoption("--record"), __file__)


def test_table_of_fields(pytestconfig):
    """The table of fields on the site is that of the model."""
    text = table(JobSpecification.model_fields.items())
    path = ROOT / "docs" / "reference" / "job-schema.csv"
    kept_in_step(path, text, pytestconfig.getoption("--record"), __file__)
