"""What to do with the blocks of a model before fully_shard: recompute what costs little, compile the rest."""

from functools import partial

import torch
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

ATTENTION = ("flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention")
COSTLY = [
    torch.ops.aten.mm.default,  # a matrix product
    torch.ops._c10d_functional.reduce_scatter_tensor.default,  # of tensor parallelism
    *(getattr(torch.ops.aten, f"_scaled_dot_product_{name}").default for name in ATTENTION),
]


def recomputed(forward, kept=COSTLY):
    """Return a forward pass that keeps its inputs and the results of some operations, and computes the rest again."""
    contexts = partial(create_selective_checkpoint_contexts, kept)

    def recomputing(*inputs, **named):  # a function: PyTorch does not compile a block whose forward is a partial
        return checkpoint(forward, *inputs, use_reentrant=False, context_fn=contexts, **named)

    return recomputing


def wait_for(layer):
    """Let a layer's output arrive before compiled blocks read it: in PyTorch 2.13, they lose its gradient otherwise."""
    layer.register_forward_hook(lambda _, __, output: output.clone())
