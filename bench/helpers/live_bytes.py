"""Bytes of all tensors that are alive at once, after each operation of PyTorch."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

SMALLEST = 2**16
"""Smaller storages than this do not count, and cost time."""


class LiveBytes(TorchDispatchMode):
    """Counts the storages that tensors made under it, and their most at once.

    A storage counts once, with the size that it has then: FSDP frees one by making it small. With fake tensors, which
    have no data, a model of any size can be counted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.storages = WeakIdKeyDictionary()
        self.most = 0

    def see(self, *tensors: Any) -> bool:
        """Count tensors; return whether one of them has a new storage."""
        fresh = False
        for tensor in tensors:
            if isinstance(tensor, torch.Tensor):
                storage = getattr(tensor, "_local_tensor", tensor).untyped_storage()
                if storage.nbytes() > SMALLEST and storage not in self.storages:
                    self.storages[storage] = fresh = True
        return fresh

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and count what it has made."""
        made = function(*args, **(kwargs or {}))
        if self.see(*tree_leaves(made)):
            self.most = max(self.most, sum(storage.nbytes() for storage in self.storages))
        return made
