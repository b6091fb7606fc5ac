"""Read text of unknown origin in little memory, and show it. Standard library only; for every room."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from srunbook._files import read_blocks

LONGEST_LINE = 2**16
"""Bytes of a line; a longer one may come in pieces, of which the first has more than that."""


def read_lines(path: Path) -> Iterator[bytes]:
    r"""Yield the lines of a file without their ends, `\n` or `\r`.

    Raises:
        OSError: The file cannot be read, or is not a regular one.
    """
    rest = b""
    for block in read_blocks(path):
        *lines, rest = (rest + block).replace(b"\r", b"\n").split(b"\n")
        yield from lines
        if len(rest) > LONGEST_LINE:
            yield rest
            rest = b""
    if rest:
        yield rest


def printable(text: str) -> str:
    """Escape what could move a terminal's cursor, or is not text: much of it comes out of files."""
    return "".join(character if character.isprintable() else f"\\x{ord(character):02x}" for character in text)
