"""What a model takes on each rank: parameters, gradients and the state of the optimizer, by formula.

    >>> from srunbook import memory
    >>> memory.whole(7_000_000_000, memory.PRECISIONS["bf16"], "adamw").divided(16).total / 1e9
    3.5

`fully_sharded` is exact for `torch.distributed.fsdp.fully_shard` on given shapes, padding included. On top come
activations, of which `block_activations` counts those of a transformer, and the layers that FSDP fetches while it
computes.
"""

from __future__ import annotations

from srunbook.memory._activations import block_activations
from srunbook.memory._formula import (
    OPTIMIZERS,
    PRECISIONS,
    Need,
    Precision,
    fully_sharded,
    read_count,
    whole,
)

__all__ = ["OPTIMIZERS", "PRECISIONS", "Need", "Precision", "block_activations", "fully_sharded", "read_count", "whole"]
