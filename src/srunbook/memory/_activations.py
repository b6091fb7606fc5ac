"""Bytes that a transformer keeps for its backward pass."""

from __future__ import annotations

from fractions import Fraction
from math import ceil


def block_activations(batch: int, length: int, width: int, heads: int, *, size: int, ranks: int = 1) -> int:
    """Return the bytes that a block of a GPT keeps for its backward pass on each rank.

    Of each token it keeps 16 rows of `width` numbers: the inputs of both norms (2), of the projections to query, key
    and value and of the first layer (2), query, key, value and what the attention gives (4), and the wide ones before
    and after the activation function (8). These are the 34 bytes of Korthikanti et al., "Reducing Activation
    Recomputation in Large Transformer Models" (2022), without the two masks of dropout, for numbers of 2 bytes. Fused
    attention keeps one number for each head in place of a row of scores, and each norm two; these have 4 bytes.

    Tensor parallelism with sequence parallelism divides all of it among its ranks, except the two inputs that PyTorch
    gathers before the column-wise layers.

    Args:
        batch: Number of sequences on a rank.
        length: Tokens of a sequence.
        width: Numbers of a token.
        heads: Of the attention.
        size: Bytes of a number: 2 in 16 bits, 4 in 32.
        ranks: How many ranks compute a block together.

    Raises:
        ValueError: One of them is below 1.

    >>> block_activations(1, 2048, 4096, 32, size=2) / 1e6
    268.730368
    """
    given = {"batch": batch, "length": length, "width": width, "heads": heads, "size": size, "ranks": ranks}
    for name, number in given.items():
        if number < 1:
            raise ValueError(f"{name} is {number}: expected at least 1")
    row = width * size
    divided = 14 * row + 4 * (4 + heads)
    return ceil(batch * length * (2 * row + Fraction(divided, ranks)))
