"""Every entry about a failure of SVGD: the broken program prints its message again, and the mended one runs.

`pytest tests/simulation/test_svgd_guide_failures.py --record` writes the recordings anew. The entry about the network
needs nodes: tests/cluster/test_svgd.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.failure_cases import Case, check

from recordings.comparing import Mask

pytest.importorskip("optax")

ROOT = Path(__file__).resolve().parents[2]
FAILURES = ROOT / "examples" / "failures"

MASKS = (
    Mask(r"^\[\d\] ", "[<rank>] ", "the first that ends with an error ends the others, before or after theirs"),
    Mask(r"(Error dispatching computation: )+", "<again>", "once for each computation that waits for the first"),
    Mask(r"127\.0\.0\.\d:\d+", "<address>", "the port follows from the job id, which is fresh for each run"),
)


CASES = [
    Case(
        "svgd-coordinator-timeout/broken.py",
        (r"rank 0 on \S+ ends: not all 2 processes came", r"rank 1 on \S+ ends: not all 2 processes came"),
        1,
    ),
    Case("svgd-coordinator-timeout/fixed.py", ("Process [01]/2",)),
    Case("svgd-device-count/broken.py", ("Process [01]: 8 devices on 1 CPU, 16 in all",)),
    Case("svgd-device-count/fixed.py", ("Process [01]: 1 device on 1 CPU, 2 in all",)),
    Case("svgd-not-divisible/broken.py", ("IndivisibleError: .*should evenly divide the shape",), 1),
    Case("svgd-not-divisible/fixed.py", ("9 particles on 2 devices",)),
    Case("svgd-out-of-memory/broken.py", ("Out of memory allocating 1125899906842624 bytes",), 1),
    Case("svgd-out-of-memory/fixed.py", (r"direction \(16384, 16\): the process held less than 1 GiB",)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.program)
def test_program_prints_what_was_recorded(case: Case, reader: Any) -> None:
    """A program about a failure ends, and prints its message, as recorded."""
    check(FAILURES / case.program, case, reader, MASKS)
