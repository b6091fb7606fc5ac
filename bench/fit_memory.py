"""What a rank holds at once while it trains a large transformer, beside what `srunbook memory` says.

python bench/fit_memory.py         # writes bench/results/fit_memory.json

PyTorch runs every operation of two steps on fake tensors, which have shapes and no data, with `fully_shard` on a
process group that sends nothing. So one machine counts what one of 64 ranks holds. Nothing is measured on a GPU.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import NamedTuple

import torch
import torch.distributed as dist
from helpers.live_bytes import LiveBytes
from helpers.program import options_of, write
from measurements import Configuration
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention, silu
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.checkpoint import checkpoint

from srunbook import memory

PRECISION = MixedPrecisionPolicy(torch.bfloat16, reduce_dtype=torch.float32, output_dtype=torch.float32)


class Blocks(NamedTuple):
    """What the formulas don't ask for: heads, heads of keys and values, and the width of the inner layers."""

    heads: int
    pairs: int
    inner: int
    gated: bool = True


class Run(NamedTuple):
    """A model and how it is trained. It is one of those that the form offers."""

    model: str
    blocks: Blocks
    layout: str
    gpus: int
    sequences: int
    length: int


GPT2, ONE, EIGHT, SEVENTY = (
    Blocks(12, 12, 3072, gated=False),
    Blocks(32, 8, 8192),
    Blocks(32, 8, 14336),
    Blocks(64, 8, 28672),
)
RUNS = (
    Run("GPT-2", GPT2, "DDP", 1, 8, 1024),
    Run("Llama 3.2 1B", ONE, "DDP", 1, 1, 4096),
    Run("Llama 3.2 1B", ONE, "FSDP", 8, 2, 4096),
    Run("Llama 3.1 8B", EIGHT, "FSDP", 16, 1, 4096),
    Run("Llama 3.1 8B", EIGHT, "FSDP, recomputing", 16, 2, 8192),
    Run("Llama 3.1 70B", SEVENTY, "FSDP, recomputing", 64, 1, 8192),
)


def rotated(x: Tensor) -> Tensor:
    """Turn pairs of numbers by an angle that grows with their place."""
    length, size = x.shape[-2:]
    angle = torch.outer(torch.arange(length), 1e4 ** (-torch.arange(0, size, 2) / size))
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


class Block(nn.Module):
    """A block of GPT-2 or, with gated layers, of Llama. Its norm is one kernel, as on a GPU."""

    def __init__(self, width: int, blocks: Blocks) -> None:
        super().__init__()
        self.gated, self.size, bias = blocks.gated, width // blocks.heads, not blocks.gated
        self.norm1, self.norm2 = nn.LayerNorm(width, bias=bias), nn.LayerNorm(width, bias=bias)
        few = blocks.pairs * self.size
        self.query, self.out = nn.Linear(width, width, bias=bias), nn.Linear(width, width, bias=bias)
        self.key, self.value = nn.Linear(width, few, bias=bias), nn.Linear(width, few, bias=bias)
        self.up, self.down = nn.Linear(width, blocks.inner, bias=bias), nn.Linear(blocks.inner, width, bias=bias)
        self.gate = nn.Linear(width, blocks.inner, bias=False) if blocks.gated else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Add attention, then the inner layers."""
        y = self.norm1(x)
        query, key, value = (
            layer(y).unflatten(2, (-1, self.size)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        if self.gated:
            query, key = rotated(query), rotated(key)
        taken = scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=self.gated)
        x = x + self.out(taken.transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.down(silu(self.gate(y)) * self.up(y) if self.gated else gelu(self.up(y)))


class Model(nn.Module):
    """Embedding, blocks, norm and head."""

    def __init__(self, shape: memory.Transformer, blocks: Blocks, *, recompute: bool) -> None:
        super().__init__()
        self.recompute = recompute
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.blocks = nn.ModuleList(Block(shape.width, blocks) for _ in range(shape.layers))
        self.norm, self.head = nn.LayerNorm(shape.width), nn.Linear(shape.width, shape.vocabulary, bias=False)
        if shape.tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits of each token."""
        x = self.embedding(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return self.head(self.norm(x))


def count(run: Run, shape: memory.Transformer) -> tuple[int, int]:
    """Train two steps of a model; return its number of parameters, and the most bytes at once in the second."""
    dist.init_process_group("fake", rank=0, world_size=run.gpus, store=FakeStore())
    mesh = init_device_mesh("cpu", (run.gpus,))
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = Model(shape, run.blocks, recompute="recomputing" in run.layout)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        if run.layout != "DDP":
            for block in model.blocks:
                fully_shard(block, mesh=mesh, mp_policy=PRECISION)
            fully_shard(model, mesh=mesh)
        optimizer = torch.optim.AdamW(model.parameters())
        with LiveBytes() as live:
            live.see(*model.parameters())
            for _ in range(2):
                live.most = 0
                tokens = torch.randint(0, shape.vocabulary, (run.sequences, run.length))
                optimizer.zero_grad()
                with torch.autocast("cpu", torch.bfloat16, enabled=run.layout == "DDP"):
                    loss = cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
                loss.backward()
                optimizer.step()
    dist.destroy_process_group()
    return parameters, live.most


def main() -> None:
    """Count each run, and write the file."""
    options = options_of(__doc__, "fit_memory")
    rows = []
    for run in RUNS:
        known = memory.FORMULAS["shapes"][run.model]
        shape = memory.Transformer(known["layers"], known["width"], known["vocabulary"], run.length, known["tied"])
        parameters, held = count(run, shape)
        said = memory.estimate(parameters, run.layout, gpus=run.gpus, shape=shape, sequences=run.sequences)["most"]
        about = {"model": run.model, "layout": run.layout if run.gpus > 1 else "one GPU", "gpus": run.gpus}
        about |= {"sequences": run.sequences, "length": run.length}
        rows.append(
            Configuration(
                f"{run.model}, {run.layout}, {run.gpus}",
                {**about, "model_parameters": parameters},
                {"counted_GB": [held / 1e9], "formula_GB": [said / 1e9], "off_percent": [100 * (said / held - 1)]},
            )
        )
        print(rows[-1].name, rows[-1].samples, flush=True)
    write(options.output, rows, versions={"torch": version("torch")}, parameters={"backend": "fake"})


if __name__ == "__main__":
    main()
