"""Try PyTorch's own `context_parallel` on CPUs: attention over sequences of which each rank has a part.

torchrun --standalone --nproc-per-node 2 bench/ranks/torch_context_parallel.py
"""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.distributed.nn  # before init_process_group, or its threads never end
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import context_parallel_unshard
from torch.nn import functional

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(0)
heads = [torch.randn(2, 4, 32, 16) for _ in range(3)]  # sequences, heads, characters, numbers
expected = functional.scaled_dot_product_attention(*heads, is_causal=True)
with context_parallel(mesh, buffers=heads, buffer_seq_dims=[2, 2, 2]):
    part = functional.scaled_dot_product_attention(*heads, is_causal=True)
(found,) = context_parallel_unshard(mesh, [part], [2])
print(f"largest difference {(found - expected).abs().max().item():.3g}")
dist.destroy_process_group()
