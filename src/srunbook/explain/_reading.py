r"""Read logs in little memory: packed or cut off, with colours, with progress bars that go back with `\r`."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

GZIP = b"\x1f\x8b"
LONGEST_LINE = 2**16
"""Bytes of a line; a longer one is read as several."""

UNPACKED_AT_ONCE = 2**20
PACKED_AT_ONCE = 2**12
"""Bytes that are unpacked at once: where one of them is damaged, nothing comes out of the others."""

COLOURS = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][A-Z0-9]|[=>])")
"""What moves a terminal's cursor, changes its colours or names its window."""


class Lines(NamedTuple):
    """Some lines of a log, in order.

    Args:
        texts: The lines, without their ends. What a progress bar overwrote is a line of its own.
        numbers: The number of each in the file, from 1.
    """

    texts: list[bytes]
    numbers: Sequence[int]


def read_lines(blocks: Iterable[bytes], problems: list[str]) -> Iterator[Lines]:
    """Yield the lines of a log, many at a time.

    Args:
        blocks: Its content in pieces of any size.
        problems: Gets a sentence where the content is damaged; the lines before the damage were read.
    """
    rest, number = b"", 1
    for block in chain(unpack(blocks, problems), [b"\n"]):
        data = rest + block
        end = data.rfind(b"\n") + 1
        rest = data[end:]
        if len(rest) > LONGEST_LINE:
            end, rest = len(data), b""
        if end:
            whole = data[:end].removesuffix(b"\n")
            lines = _split(whole, number)
            number += whole.count(b"\n") + (data[end - 1 : end] == b"\n")
            yield lines


def _split(data: bytes, number: int) -> Lines:
    if b"\x1b" in data:
        data = COLOURS.sub(b"", data)
    texts = data.split(b"\n")
    if b"\r" not in data and len(data) <= LONGEST_LINE:
        return Lines(texts, range(number, number + len(texts)))
    pieces = [
        (piece[start : start + LONGEST_LINE], place)
        for place, text in enumerate(texts, number)
        for piece in (text.split(b"\r") if b"\r" in text else [text])
        for start in (range(0, len(piece), LONGEST_LINE) if len(piece) > LONGEST_LINE else [0])
    ]
    return Lines([piece for piece, _ in pieces], [place for _, place in pieces])


def unpack(blocks: Iterable[bytes], problems: list[str]) -> Iterator[bytes]:
    """Yield the content, unpacked if it begins like a file of gzip; of one that was cut off, what is there."""
    stream = iter(blocks)
    first = next(stream, b"")
    if not first.startswith(GZIP):
        yield first
        yield from stream
        return
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
    for block in chain([first], stream):
        left, later = block[:PACKED_AT_ONCE], block[PACKED_AT_ONCE:]
        while left:
            if unpacker.eof:
                unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
            try:
                yield unpacker.decompress(left, UNPACKED_AT_ONCE)
            except zlib.error:
                problems.append("the gzip file is damaged: only what comes before the damage was read")
                return
            left = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
            if not left:
                left, later = later[:PACKED_AT_ONCE], later[PACKED_AT_ONCE:]
    yield unpacker.flush()
    if not unpacker.eof:
        problems.append("the gzip file is cut off: only what it holds was read")
