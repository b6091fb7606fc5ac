"""Bytes that a rank sends in a step of the guide *When it does not fit*: formulas for gloo, and for NCCL's rings.

What a collective of N ranks sends from each of them, for a whole buffer of S bytes, as the sources of gloo and PyTorch
say:

- all-gather: (N - 1) / N S, for each part passes every rank but one (`gloo::allgather`, NCCL's ring);
- all-reduce: twice as much, once to sum the parts and once to spread the sums (`gloo::allreduce`, NCCL's ring);
- reduce-scatter: (N - 1) / N S with NCCL. PyTorch's gloo backend reduces a copy of the whole buffer to all ranks and
  keeps one part of it (`ProcessGroupGloo::reduce_scatter_tensor_coalesced`), which sends what an all-reduce sends;
- send and receive: S, once.

Left out are headers and acknowledgements, the all-reduces of single numbers in which clipping adds up its norms, and
that tensor parallelism does not divide norms and biases.
"""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import torch
from helpers.fit_nodes import PIECES
from helpers.network import ring_bytes

from srunbook import memory

HALF, SINGLE = 2, 4
"""Bytes of a number in 16 and in 32 bits."""

MODEL = runpy.run_path(str(Path(__file__).resolve().parents[2] / "examples" / "does_not_fit" / "ddp.py"))
LAYERS, WIDTH, CHARACTERS = MODEL["LAYERS"], MODEL["WIDTH"], len(MODEL["CHARACTERS"])
TOKENS = MODEL["BATCH_SIZE"] * MODEL["CONTEXT"]
"""Of the batch of all ranks."""


def all_gather(size: float, ranks: int) -> float:
    """Return the bytes that each rank sends to gather so many, and NCCL's also to reduce and scatter them.

    >>> all_gather(8e6, 4)
    6000000.0
    """
    return (ranks - 1) / ranks * size


LIBRARIES: dict[str, Callable[[float, int], float]] = {"gloo": ring_bytes, "NCCL": all_gather}
"""What a rank sends in a reduce-scatter."""


def predicted_bytes(program: str, ranks: int, library: str) -> float:
    """Return the bytes that a rank sends in a step, as the mean of all ranks.

    Args:
        program: Such as `fsdp.py`, or when FSDP over pieces of a batch sends its gradients, as in `ACCUMULATED`.
        ranks: Number of ranks, even. HSDP shares a copy between two, and `fsdp_tp.py` computes a layer with two.
        library: One of `LIBRARIES`.

    Raises:
        KeyError: The program or the library is unknown.
    """
    reduce_scatter = LIBRARIES[library]

    def fsdp(sharing: int, together: int = 1, *, fetches: int = 2, sums: int = 1, passes: int = 1) -> float:
        """Gather blocks in 16 bits before each way and the rest once a pass; reduce all gradients in 32 bits."""
        blocks, rest = (numbers(part, sharing) / together for part in (True, False))
        gathered = all_gather(fetches * HALF * blocks + passes * SINGLE * rest, sharing)
        return gathered + sums * reduce_scatter(SINGLE * (blocks + rest), sharing)

    def tensors(together: int, groups: int, size: int) -> float:
        """Gather and scatter tokens: four times for a block, and at the first and the last layer in 32 bits."""

        def both(count: float) -> float:
            return all_gather(count, together) + reduce_scatter(count, together)

        tokens = TOKENS // groups
        scores = tokens * -(-CHARACTERS // together) * together
        ends = 2 * both(SINGLE * tokens * WIDTH) + both(SINGLE * MODEL["CONTEXT"] * WIDTH)
        return 4 * LAYERS * both(size * tokens * WIDTH) + ends + all_gather(SINGLE * scores, together)

    def pipeline() -> float:
        """Send activations over each boundary between stages, and their gradients back."""
        return 2 * (ranks - 1) / ranks * SINGLE * TOKENS * WIDTH

    formulas: dict[str, Callable[[], float]] = {
        "ddp.py": lambda: ring_bytes(SINGLE * (numbers(True) + numbers(False)), ranks),
        "fsdp.py": lambda: fsdp(ranks),
        "hsdp.py": lambda: fsdp(2) + ring_bytes(SINGLE * (numbers(True, 2) + numbers(False, 2)) / 2, ranks // 2),
        "tensor_parallel.py": lambda: tensors(ranks, 1, SINGLE),
        "fsdp_tp.py": lambda: tensors(2, ranks // 2, HALF) + fsdp(ranks // 2, together=2),
        "pipeline.py": pipeline,
        "after each piece": lambda: fsdp(ranks, fetches=2 * PIECES, sums=PIECES, passes=PIECES),
        "after the last piece": lambda: fsdp(ranks, fetches=2 * PIECES, passes=PIECES),
        "after the last piece, parameters fetched once": lambda: fsdp(ranks, fetches=1),
    }
    return formulas[program]()


def numbers(blocks: bool, ranks: int = 1) -> int:
    """Count the parameters of all blocks, or of the other layers, padded so that the ranks have equal parts."""
    with torch.device("meta"):
        model = MODEL["gpt"]()
    shapes = [
        parameter.shape
        for layer in model
        if isinstance(layer, MODEL["Block"]) == blocks
        for parameter in layer.parameters()
    ]
    float32 = memory.PRECISIONS["float32"]
    return ranks * memory.fully_sharded(shapes, float32, "sgd", ranks=ranks, rank=0).parameters // float32.parameter
