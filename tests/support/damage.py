"""Damage to a file that keeps its size."""

from __future__ import annotations

from pathlib import Path


def flipped(content: bytes) -> bytes:
    """Return the content with one bit in its middle flipped."""
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def flip_a_bit(path: Path) -> None:
    """Flip the bit in a file."""
    path.write_bytes(flipped(path.read_bytes()))
