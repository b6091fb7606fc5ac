"""Tell whether a file was cut off while it was written."""

from __future__ import annotations

import os
from pathlib import Path

from srunbook._files import open_regular

LONGEST_TAIL = 2**16 + 21
"""Bytes at the end of a zip archive that may hold the mark of its end: the comment behind it may be long."""


def ends_early(path: Path) -> bool:
    """Tell whether a table lacks the end of its last line, or a zip archive, as checkpoints are, its directory.

    Of a file that cannot be read, nothing is known, and this returns False.
    """
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(4)
            file.seek(max(0, size - LONGEST_TAIL))
            tail = file.read(LONGEST_TAIL)
    except OSError:
        return False
    if path.suffix == ".csv":
        return not tail.endswith((b"\n", b"\r")) if size else False
    return head == b"PK\x03\x04" and b"PK\x05\x06" not in tail
