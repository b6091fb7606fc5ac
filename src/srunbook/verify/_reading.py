"""Read lines of files of any size and content, in little memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from srunbook._files import open_regular, read_blocks

LONGEST_LINE = 2**16
"""Bytes of a line that are read; the rest of a longer one is passed over."""

LONGEST_TAIL = 2**16 + 21
"""Bytes at the end of a zip archive that may hold the mark of its end: the comment behind it may be long."""


def read_lines(path: Path) -> Iterator[bytes]:
    r"""Yield the lines of a file without their ends, `\n` or `\r`, as far as it went when it was opened.

    Of a line that is longer than `LONGEST_LINE`, this yields one byte more than that, and nothing else.

    Raises:
        OSError: The file cannot be read, or is not a regular one.
    """
    rest, skipping = b"", False
    for block in read_blocks(path):
        lines = block.replace(b"\r", b"\n").split(b"\n")
        if skipping:
            if len(lines) == 1:
                continue
            del lines[0]
            skipping = False
        lines[0] = rest + lines[0]
        rest = lines.pop()
        for line in lines:
            yield line if len(line) <= LONGEST_LINE else line[: LONGEST_LINE + 1]
        if len(rest) > LONGEST_LINE:
            yield rest[: LONGEST_LINE + 1]
            rest, skipping = b"", True
    if rest:
        yield rest


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
