"""How much memory a model takes on each rank: parameters, gradients and the optimizer's state, by formula.

    >>> from srunbook import memory
    >>> memory.whole(7_000_000_000, memory.PRECISIONS["bf16"], "adamw").divided(16).total / 1e9
    3.5

`fully_sharded` is exact for `torch.distributed.fsdp.fully_shard` on given shapes, padding included. Activations, which
`block_activations` counts for a transformer, and the layers that FSDP fetches while it computes are extra.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

__all__ = ["OPTIMIZERS", "PRECISIONS", "Need", "Precision", "block_activations", "fully_sharded", "read_count", "whole"]

OPTIMIZERS = {"sgd": 0, "momentum": 1, "adamw": 2}
"""How many numbers an optimizer keeps for each parameter."""

SUFFIXES = {"": 0, "K": 3, "M": 6, "B": 9, "T": 12}
MOST = 10**18


@dataclass(frozen=True)
class Precision:
    """Bytes of a parameter between two steps, of its gradient, and of each number that the optimizer keeps for it."""

    parameter: int
    gradient: int
    state: int


PRECISIONS = {"float32": Precision(4, 4, 4), "mixed": Precision(4, 4, 4), "bf16": Precision(2, 2, 2)}
"""The precisions by name. `mixed` computes in 16 bits and keeps everything in 32; `bf16` keeps everything in 16."""


@dataclass(frozen=True)
class Need:
    """Bytes that a rank holds between two steps."""

    parameters: int
    gradients: int
    optimizer: int

    @property
    def total(self) -> int:
        """Return the sum."""
        return self.parameters + self.gradients + self.optimizer

    def divided(self, ranks: int) -> Need:
        """Return the share of each rank, rounded up to whole bytes."""
        return Need(-(-self.parameters // ranks), -(-self.gradients // ranks), -(-self.optimizer // ranks))


def read_count(text: str) -> int:
    """Read a number of parameters, such as `7B`, `350M` or `124439808`.

    >>> read_count("1.5B"), read_count("13k")
    (1500000000, 13000)

    Raises:
        ValueError: The text is not such a number, or the number is not between 1 and 10^18.
    """
    match = re.fullmatch(r"(\d{1,19}(?:\.\d{1,12})?)([KMBT]?)", text.strip().upper(), re.ASCII)
    if not match:
        raise ValueError(f"{text!r} is not a number of parameters: write 7B, 350M or 124439808")
    count = Fraction(match[1]) * 10 ** SUFFIXES[match[2]]
    if count.denominator != 1 or not 1 <= count <= MOST:
        raise ValueError(f"{text!r} is not a number of parameters: expected a whole number from 1 to 10^18")
    return int(count)


def whole(count: int, precision: Precision, optimizer: str) -> Need:
    """Return the bytes that a whole model takes, as on each rank of DDP.

    Args:
        count: Number of parameters.
        precision: Bytes of each number.
        optimizer: One of `OPTIMIZERS`.
    """
    kept = OPTIMIZERS[optimizer]
    return Need(count * precision.parameter, count * precision.gradient, count * precision.state * kept)


def fully_sharded(
    shapes: Iterable[Sequence[int]], precision: Precision, optimizer: str, *, ranks: int, rank: int
) -> Need:
    """Return the bytes that a rank holds of a model that `fully_shard` divides.

    Each parameter is cut along its first dimension into as many pieces as there are ranks. Parameters and gradients
    are padded to pieces of equal size; the optimizer keeps its numbers for real rows only, so the last ranks have
    fewer. AdamW also counts its steps, 4 bytes for each parameter tensor, which are not included.

    Args:
        shapes: Shapes of the parameters, each with at least one dimension.
        precision: Bytes of each number.
        optimizer: One of `OPTIMIZERS`.
        ranks: How many ranks share one copy of the model.
        rank: Number of the rank, from 0.
    """
    padded = real = 0
    for shape in shapes:
        rows, width = shape[0], math.prod(shape[1:])
        piece = -(-rows // ranks)
        padded += piece * width
        real += max(0, min(piece, rows - rank * piece)) * width
    state = precision.state * OPTIMIZERS[optimizer]
    return Need(padded * precision.parameter, padded * precision.gradient, real * state)


def block_activations(batch: int, length: int, width: int, heads: int, *, size: int, ranks: int = 1) -> int:
    """Return the bytes that a block of a GPT keeps for its backward pass on each rank.

    For each token, the block keeps 16 rows of `width` numbers: the inputs of both norms (2), the inputs of the
    projections to query, key and value and of the first layer (2), query, key, value and the attention's output (4),
    and the wide rows before and after the activation function (8). These are the 34 bytes of Korthikanti et al.,
    "Reducing Activation Recomputation in Large Transformer Models" (2022), without the two dropout masks, for numbers
    of 2 bytes. Fused attention keeps one number for each head instead of a row of scores, and each norm keeps two
    numbers; these numbers have 4 bytes.

    Tensor parallelism with sequence parallelism divides these rows among its ranks, except the two inputs that PyTorch
    gathers before the column-wise layers.

    Args:
        batch: Number of sequences on a rank.
        length: Number of tokens in a sequence.
        width: Number of values for each token.
        heads: Number of attention heads.
        size: Bytes of each value: 2 for 16 bits, 4 for 32.
        ranks: How many ranks compute a block together.

    >>> block_activations(1, 2048, 4096, 32, size=2) / 1e6
    268.730368
    """
    row = width * size
    divided = 14 * row + 4 * (4 + heads)
    return math.ceil(batch * length * (2 * row + Fraction(divided, ranks)))
