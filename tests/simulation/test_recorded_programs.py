"""The programs of the guides, as a reader runs them: the last command at the top prints what was recorded.

`pytest tests/simulation/test_recorded_programs.py -k resume.py --full --record` records programs with such names.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
from support.programs import expect_abort_at_exit
from support.reader import Reader

from recordings.comparing import Mask

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
GUIDES = ("does_not_fit", "gloo_ddp", "jax_multinode", "lightning", "torchrun")

ELSEWHERE = {
    "does_not_fit/unfuse",  # needs a model
    "gloo_ddp/full/scaling_summary",  # reads logs
    "gloo_ddp/full/slow_nodes",  # reads logs
    "lightning/full/benchmark",  # reads what trainings leave
    "lightning/lightning_ddp",  # these four are compared with each other
    "lightning/one_process",
    "lightning/srun_ddp",
    "lightning/torchrun_ddp",
    "torchrun/first_error",  # fails
}
"""Programs that other tests run."""

MASKS = (
    Mask(r"^\[\d\] ", "[<node>] ", "any of the nodes may get rank 0"),
    Mask(r"[\d.]+ (ms|MiB|samples/s|tokens/s|times as long)\b", r"<n> \1", "machines and compilers differ"),
    Mask(r"\d+% of", "<n>% of", "it is a ratio of two times"),
    Mask(r"([Aa]ccuracy:? |Loss: )[\d.]+", r"\1<n>", "processors round in different ways, and training amplifies it"),
    Mask(" +", " ", "the width of a column follows from its numbers"),
)


def programs() -> dict[str, str]:
    """Return the command of each program, by its path."""
    found = {}
    for path in (path for guide in GUIDES for path in sorted((EXAMPLES / guide).rglob("*.py"))):
        name, commands = path.relative_to(EXAMPLES), Reader.commands(path)
        if commands and name.with_suffix("").as_posix() not in ELSEWHERE:
            found[name.as_posix()] = commands[-1]
    return found


def is_long(command: str) -> bool:
    """Whether a command starts more ranks than two."""
    return math.prod(int(number) for number in re.findall(r"--n\S+[ =](\d+)", command)) > 2


@pytest.mark.parametrize(
    ("name", "command"),
    [pytest.param(*each, marks=pytest.mark.full if is_long(each[1]) else ()) for each in programs().items()],
    ids=programs(),
)
def test_last_command_of_the_docstring(name: str, command: str, reader: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last command at the top of a program that needs no Slurm runs it, and prints what was recorded."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # else two ranks may share a line
    run = reader.run(EXAMPLES / name, command)
    expect_abort_at_exit(bool(run.exit_code), run.text)

    assert run.exit_code == 0, run.text
    reader.compare(EXAMPLES / name, run, lambda line: not re.search(r"\bW\d{4} |Warning", line), MASKS)
