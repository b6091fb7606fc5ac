"""The examples of `srunbook explain` and `memory`: the pages show what the commands print and make."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any

from recordings.comparing import Mask
from srunbook.explain import load_entries

ROOT = Path(__file__).resolve().parents[2]
TRAIN = ROOT / "examples" / "explain" / "train.py"
ASK = ROOT / "examples" / "explain" / "first_failure.py"
MEMORY = ROOT / "examples" / "memory" / "memory_of_7b.py"

ABORTS = "torch-abort-at-exit"

MASKS = (
    Mask(r"\[127\.0\.0\.1\]:\d+", "<address>", "the system chooses the port"),
    Mask(r"line \d+", "line <n>", "order"),
)


def test_training_fails_on_both_ranks(reader: Any) -> None:
    """Rank 1 runs out of memory, and rank 0 loses its connection."""
    (command,) = reader.commands(TRAIN)
    run = reader.run(TRAIN, command)

    aborted = "terminate called without an active exception" in run.text  # as ranks that end by an exception may
    assert run.exit_code == (128 + signal.SIGABRT if aborted else 1)
    reader.compare(TRAIN, run, lambda line: bool(re.search("allocate memory|Connection closed", line)), MASKS)


def test_first_failure_is_named(reader: Any) -> None:
    """The rank that ran out of memory is the first failure; the other one follows."""
    (command,) = reader.commands(ASK)
    run = reader.run(ASK, command, beside=[TRAIN])

    assert run.exit_code == 0
    assert run.output[0].startswith("The first failure: rank 1 on 127.0.0.2, job.log, line ")
    assert run.text.index("torch-out-of-memory.html") < run.text.index("What followed:")
    assert run.text.index("What followed:") < run.text.index("torch-peer-died.html")
    reader.compare(ASK, run, says_why, MASKS)


def says_why(line: str) -> bool:
    """Return whether a line is part of what every run says: a rank that ends by an exception may abort besides."""
    aborts = load_entries()[ABORTS]
    return bool(re.search("Fix|Page|followed", line)) and aborts.fix not in line and ABORTS not in line


def test_memory(reader: Any) -> None:
    """The program's command prints what the page shows."""
    (command,) = reader.commands(MEMORY)
    run = reader.run(MEMORY, command)

    assert run.exit_code == 0
    reader.compare(MEMORY, run, keep=lambda _line: True, masks=[])
