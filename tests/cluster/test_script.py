"""Directives on a real Slurm: the option table is that of its sbatch, and sbatch reads scripts as we do."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.drawn_scripts import drawn_scripts

from srunbook import cluster, script
from srunbook._files import write_whole
from srunbook.cluster import State
from srunbook.script.directives import directive_lines

TABLES = Path(script.__file__).with_name("options.json")

NAMES = """\
sbatch --help
for letter in {a..z}; do sbatch --$letter </dev/null 2>&1 | grep "^sbatch: option"; done; true
"""
"""Asks sbatch for the names of its options: its help leaves some out, getopt lists them for an ambiguous word."""

ARGUMENTS = """\
for name; do
  case $(sbatch --"$name" </dev/null 2>&1; sbatch --"$name=x" </dev/null 2>&1) in
    *"requires an argument"*) echo "$name required" ;;
    *"doesn't allow an argument"*) echo "$name none" ;;
    *"unrecognized option"*) ;;
    *) echo "$name optional" ;;
  esac
done
"""
"""Asks sbatch for each option whether it has an argument."""


def told(as_user: Callable[..., str]) -> dict[str, Any]:
    """Return the options that sbatch knows."""
    text = as_user("bash", "-c", NAMES)
    names = sorted(set(re.findall(r"--([a-z][a-z-]+)", text)))
    short = dict(re.findall(r"^ {2}-(\w),? +--([a-z-]+)", text, re.MULTILINE))
    arguments = as_user("bash", "-c", ARGUMENTS, "bash", *names).splitlines()
    return {"arguments": dict(line.split() for line in arguments), "short": dict(sorted(short.items()))}


def test_options_are_those_of_sbatch(as_user: Callable[..., str], slurm: State, pytestconfig: pytest.Config) -> None:
    """The table that ships is what sbatch of each generation says of itself."""
    generation = slurm.specification.slurm
    tables = json.loads(TABLES.read_text(encoding="utf-8"))
    found = told(as_user)
    if pytestconfig.getoption("--record"):
        tables[generation] = found
        write_whole(TABLES, json.dumps(dict(sorted(tables.items())), indent=1) + "\n")

    assert found == tables[generation], "python -m pytest tests/cluster/test_script.py --slurm all --record"
    assert found["arguments"]["partition"] == "required"


def test_sbatch_reads_directives_as_we_do(slurm: State, tmp_path: Path) -> None:
    """For drawn scripts, sbatch finds the words that we find, and refuses those that we refuse for their words."""
    scripts = list(drawn_scripts(120, odd=0.05))
    for number, data in enumerate(scripts):
        (tmp_path / f"{number:03}.sbatch").write_bytes(data)
    first, *others = sorted(tmp_path.glob("*.sbatch"))
    folder = cluster.stage(slurm, first, extra=others)
    loop = 'for file in *.sbatch; do echo "== $file"; sbatch -vvv --test-only "$file" 2>&1; done; true'
    said = cluster.capture(slurm, ["bash", "-c", loop], folder=folder).stdout
    answers = [part.partition("\n")[2] for part in said.split("== ")[1:]]

    assert len(answers) == len(scripts)
    refused = []
    for data, answer in zip(scripts, answers, strict=True):
        found = re.findall(r'Found in script, argument "(.*)"$', answer, re.MULTILINE)
        try:
            lines = list(directive_lines(data, slurm.specification.slurm))
            script.parse(data, slurm.specification.slurm)
        except script.ScriptError as error:
            refused.append((error.problem, data, answer))
            continue
        assert [word.text for line in lines for word in line.words] == found, data.decode()
    assert 5 <= len(refused) <= len(scripts) // 2
    for problem, data, answer in refused:
        said = re.search(r"Unmatched|Unexpected|Invalid directive|requires an argument", answer)
        assert said or "hetjob" in problem, f"{problem}\n{data.decode()}\n{answer}"
