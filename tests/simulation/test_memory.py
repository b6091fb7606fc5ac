"""The example of `srunbook memory`: what the page shows is what the command prints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "examples" / "memory" / "memory_of_7b.py"


def test_recorded_output(reader: Any) -> None:
    """The program's command prints what the page shows."""
    (command,) = reader.commands(PROGRAM)
    run = reader.run(PROGRAM, command)

    assert run.status == 0
    reader.compare(PROGRAM, run, keep=lambda _line: True, masks=[])
