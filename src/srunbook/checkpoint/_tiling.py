"""Check that pieces hold every element of a tensor exactly once."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping

from srunbook.checkpoint._entries import FileEntry, PieceEntry, TensorEntry
from srunbook.checkpoint._errors import short

PRIME = (1 << 61) - 1


def check_tiling(tensors: Mapping[str, TensorEntry], files: Iterable[FileEntry]) -> None:
    """Check that the pieces in the files hold every element of each tensor exactly once.

    Raises:
        ValueError: A tensor has a hole or an overlap, a piece lies outside, a file is too small for its pieces, or is
            listed twice.
    """
    found: dict[str, list[PieceEntry]] = {name: [] for name in tensors}
    names = set()
    for file in files:
        if file.name in names:
            raise ValueError(f"{file.name} is listed twice")
        names.add(file.name)
        needed = 8
        for piece in file.pieces:
            if piece.tensor not in tensors:
                raise ValueError(f"{file.name} holds a piece of {short(piece.tensor)}, which is not listed")
            found[piece.tensor].append(piece)
            needed += math.prod(piece.shape) * tensors[piece.tensor].itemsize
        if file.size < needed:
            raise ValueError(f"{file.name} has {file.size} bytes, but its pieces need {needed}")
    for name, pieces in found.items():
        _check_boxes(name, tensors[name].shape, pieces)


def _check_boxes(name: str, shape: tuple[int, ...], pieces: list[PieceEntry]) -> None:
    for piece in pieces:
        ends = [first + size for first, size in zip(piece.start, piece.shape, strict=True)]
        if len(ends) != len(shape) or any(end > size for end, size in zip(ends, shape, strict=True)):
            raise ValueError(
                f"a piece of {short(name)} at {short(piece.start)} of shape {short(piece.shape)} leaves {shape}"
            )
    filled = sum(math.prod(piece.shape) for piece in pieces)
    wanted = math.prod(shape)
    if filled != wanted or not pieces:
        raise ValueError(f"the pieces of {short(name)} have {filled} of {wanted} elements of {shape}")
    if len(pieces) > 1 and not _fit(shape, pieces):
        raise ValueError(
            f"the pieces of {short(name)} overlap: {shape} has elements that two of them hold, and others none"
        )


def _fit(shape: tuple[int, ...], pieces: list[PieceEntry]) -> bool:
    """Return whether boxes hold each element once, in time that grows with their number and no faster.

    Give every index of every axis a random weight, and every element the product of the weights of its indices. The
    weight of a box is then the product over the axes of a difference of two running sums, one at each of its ends. If
    the boxes hold each element once, their weights add up to that of the tensor. If they do not, both sides are
    different polynomials in the running sums, and for random values modulo a prime of 61 bits they agree with a
    probability of 64 axes / 2**61 at most (the lemma of Schwartz and Zippel).
    """
    numbers = random.Random()  # noqa: S311 - has to be unrelated to the boxes, which were there before it; no secret
    sums: list[dict[int, int]] = [{} for _ in shape]

    def weight(start: tuple[int, ...], lengths: tuple[int, ...]) -> int:
        product = 1
        for axis, first, length in zip(sums, start, lengths, strict=True):
            for end in (first, first + length):
                if end not in axis:
                    axis[end] = numbers.randrange(PRIME)
            product = product * (axis[first + length] - axis[first]) % PRIME
        return product

    total = sum(weight(piece.start, piece.shape) for piece in pieces)
    return (total - weight((0,) * len(shape), shape)) % PRIME == 0
