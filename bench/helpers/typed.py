"""What was typed to start a benchmark, for its result."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path


def typed() -> str:
    """Return the command of this program, with PATH for every file and folder: these are of one machine."""
    return shlex.join(
        ["python", f"bench/{Path(sys.argv[0]).name}", *("PATH" if "/" in word else word for word in sys.argv[1:])]
    )
