"""What a model takes on each GPU while it trains, by formula.

    >>> from srunbook import memory
    >>> memory.estimate(7_000_000_000, "FSDP", gpus=16)["parameters"] / 1e9
    1.75

The formulas are in `memory.toml`. `fully_sharded` is exact for `torch.distributed.fsdp.fully_shard` on given shapes,
padding included, and `block_activations` for the blocks of the guide.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from importlib import resources
from typing import Any

__all__ = [
    "LAYOUTS",
    "OPTIMIZERS",
    "PRECISIONS",
    "Need",
    "Precision",
    "Transformer",
    "block_activations",
    "estimate",
    "fully_sharded",
    "read_count",
    "sequences_that_fit",
]

FORMULAS = tomllib.loads(resources.files(__package__).joinpath("memory.toml").read_text(encoding="utf-8"))

OPTIMIZERS = tuple(FORMULAS["optimizers"])
LAYOUTS = tuple(FORMULAS["layouts"])

SUFFIXES = {"": 0, "K": 3, "M": 6, "B": 9, "T": 12}
MOST = 10**18


@dataclass(frozen=True)
class Precision:
    """Bytes of a number: of a parameter between two steps, its gradient, and what the optimizer keeps for it.

    `compute` is for a number in a block, `between` for one between two blocks, `cast` for the copy of a parameter that
    autocast makes, and `loss` for a number of the loss.
    """

    parameter: int
    gradient: int
    state: int
    compute: int
    between: int
    cast: int
    loss: int


PRECISIONS = {name: Precision(**sizes) for name, sizes in FORMULAS["precisions"].items()}
"""The precisions by name. `mixed` computes in 16 bits and keeps everything in 32; `bf16` keeps everything in 16.

`master` keeps parameters and gradients in 16 bits, and for the optimizer a copy of the parameters in 32.
"""


@dataclass(frozen=True)
class Transformer:
    """The shape of a transformer.

    Args:
        layers: Number of its blocks.
        width: Numbers of a token.
        vocabulary: Number of different tokens.
        length: Tokens of a sequence.
        tied: Whether the embedding is the head as well.
    """

    layers: int
    width: int
    vocabulary: int
    length: int
    tied: bool = False


@dataclass(frozen=True)
class Need:
    """Bytes that a rank holds between two steps."""

    parameters: int
    gradients: int
    optimizer: int


def read_count(text: str) -> int:
    """Read a number of parameters, such as `7B`, `350 M` or `124,439,808`.

    >>> read_count("1.5B"), read_count("13k"), read_count("7,000,000")
    (1500000000, 13000, 7000000)

    Raises:
        ValueError: The text is not such a number, or the number is not between 1 and 10^18.
    """
    match = re.fullmatch(r"(\d{1,3}(?:,\d{3})+|\d{1,19}(?:\.\d{1,12})?) ?([KMBT]?)", text.strip().upper(), re.ASCII)
    if not match:
        raise ValueError(f"{text!r} is not a number of parameters: write 7B, 350M or 124439808")
    count = Fraction(match[1].replace(",", "")) * 10 ** SUFFIXES[match[2]]
    if count.denominator != 1 or not 1 <= count <= MOST:
        raise ValueError(f"{text!r} is not a number of parameters: expected a whole number from 1 to 10^18")
    return int(count)


def computed(formula: str, values: dict[str, float]) -> float:
    """Compute a formula of `memory.toml`."""
    return float(eval(formula, {"__builtins__": {}}, values))  # noqa: S307 - it comes with this package


def estimate(
    count: int,
    layout: str,
    *,
    gpus: int = 1,
    sharing: int | None = None,
    precision: str = "mixed",
    optimizer: str = "adamw",
    shape: Transformer | None = None,
    sequences: int = 1,
) -> dict[str, float]:
    """Return bytes by the names of `memory.toml`; `most` is what the GPU holds at once.

    Without a shape, `most` leaves out activations, logits and what FSDP fetches.

    Args:
        count: Number of parameters.
        layout: One of `LAYOUTS`.
        gpus: GPUs on all nodes.
        sharing: GPUs that share one copy of the model; None: all of them.
        precision: One of `PRECISIONS`.
        optimizer: One of `OPTIMIZERS`.
        shape: Of the model.
        sequences: On each GPU at a time.
    """
    given = {"count": count, "sharing": sharing or gpus, "several": int(gpus > 1), "sequences": sequences}
    given |= {**FORMULAS["layouts"][layout], **asdict(PRECISIONS[precision])}
    formulas = {"kept": FORMULAS["optimizers"][optimizer], **FORMULAS["model"]}
    moments = {"most": "parameters + gradients + optimizer + copies"}
    if shape:
        given |= {**asdict(shape), "matrices": 1 if shape.tied else 2}
        formulas |= FORMULAS["transformer"]
        moments = FORMULAS["moments"]
    values = {name: float(value) for name, value in given.items()}
    for name, formula in formulas.items():
        values[name] = computed(formula, values)
    at_once = {moment: computed(formula, values) for moment, formula in moments.items()}
    return {**values, **at_once, "most": max(at_once.values())}


def sequences_that_fit(size: float, count: int, layout: str, *, shape: Transformer, **options: Any) -> int:
    """Return how many sequences fit on a GPU at a time.

    Args:
        size: Bytes of the GPU's memory.
        count: Number of parameters.
        layout: One of `LAYOUTS`.
        shape: Of the model.
        options: As for `estimate`.
    """
    none, one = (estimate(count, layout, shape=shape, sequences=number, **options) for number in (0, 1))
    if none["most"] > size:
        return 0
    growing = [moment for moment in FORMULAS["moments"] if one[moment] > none[moment]]
    return min(math.floor((size - none[moment]) / (one[moment] - none[moment])) for moment in growing)


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
    kept = computed(FORMULAS["optimizers"][optimizer], asdict(precision))
    return Need(padded * precision.parameter, padded * precision.gradient, int(real * kept))


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
