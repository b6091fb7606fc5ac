"""Read text of unknown origin in little memory, and show it. Standard library only; for every room."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from srunbook._files import read_blocks

LONGEST_LINE = 2**16
"""Bytes of a line that are read; the rest of a longer one is passed over."""


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


def printable(text: str) -> str:
    """Escape what could move a terminal's cursor, or is not text: much of it comes out of files."""
    return "".join(character if character.isprintable() else f"\\x{ord(character):02x}" for character in text)
