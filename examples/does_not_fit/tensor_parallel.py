"""Train a small GPT on characters, on all GPUs of all nodes, or on CPUs. Each rank computes a part of each layer.

    torchrun --standalone --nproc-per-node 4 tensor_parallel.py
    sbatch --nodes=1 fsdp.sbatch tensor_parallel.py

The trained model goes to model.pt.
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.nn  # before init_process_group, or its threads never end
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention

# Stand-in text: sums of two numbers. Put your own text here.
TEXT = "".join(f"{a}+{b}={a + b}\n" for a in range(100) for b in range(100))
CHARACTERS = sorted(set(TEXT))
WIDTH, HEADS, LAYERS = 64, 4, 4
CONTEXT = 32  # characters that the model sees at once
BATCH_SIZE = 32  # of all ranks together
STEPS = 40
OUTER = {  # "0" is the first layer of the model, "5" the norm, "6" the last
    "0.characters": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
    "0.places": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(0)),
    f"{LAYERS + 1}": SequenceParallel(),
    f"{LAYERS + 2}": ColwiseParallel(input_layouts=Shard(1), use_local_output=False),
}
INNER = {  # of each block
    "norm1": SequenceParallel(),
    "attention": PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate()),
    "attention.query": ColwiseParallel(),
    "attention.key": ColwiseParallel(),
    "attention.value": ColwiseParallel(),
    "attention.out": RowwiseParallel(output_layouts=Shard(1)),
    "norm2": SequenceParallel(),
    "up": ColwiseParallel(input_layouts=Shard(1)),
    "down": RowwiseParallel(output_layouts=Shard(1)),
}


class Embedding(nn.Module):
    """A vector for each character, and one for its place."""

    def __init__(self):
        super().__init__()
        self.characters = nn.Embedding(len(CHARACTERS), WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)

    def forward(self, x):
        return self.characters(x) + self.places(torch.arange(x.size(1), device=x.device))


class Attention(nn.Module):
    """What each character takes from those before it."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        heads = [layer(x).unflatten(2, (-1, WIDTH // HEADS)) for layer in (self.query, self.key, self.value)]
        x = scaled_dot_product_attention(*(head.transpose(1, 2) for head in heads), is_causal=True)
        return self.out(x.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention, then two layers; each adds to what came in."""

    def __init__(self):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(WIDTH), Attention()
        self.norm2, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(gelu(self.up(self.norm2(x))))


def gpt():
    blocks = [Block() for _ in range(LAYERS)]
    return nn.Sequential(Embedding(), *blocks, nn.LayerNorm(WIDTH), nn.Linear(WIDTH, len(CHARACTERS), bias=False))


def refuse(message):
    """End all ranks; one of them says why."""
    if dist.get_rank() == 0:
        print(f"error: {message}", file=sys.stderr)
    dist.barrier()
    sys.exit(2)


def main():
    sys.stdout.reconfigure(line_buffering=True, write_through=False)  # print whole lines
    cuda = torch.cuda.is_available()
    device = torch.device(f"cuda:{os.environ['LOCAL_RANK']}" if cuda else "cpu")
    if cuda:
        torch.cuda.set_device(device)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank}/{world_size} start host={os.uname().nodename} device={device}")
    if rank == 0 and not cuda and int(os.environ.get("SLURM_GPUS_ON_NODE", 0)):
        print("warning: Slurm gave this job GPUs and PyTorch sees none: training on CPUs")
    if HEADS % world_size:
        refuse(f"{HEADS} heads do not divide among {world_size} ranks")
    if CONTEXT % world_size:
        refuse(f"{CONTEXT} characters do not divide among {world_size} ranks")
    mesh = init_device_mesh(device.type, (world_size,))

    torch.manual_seed(0)
    model = gpt().to(device)
    if len([*model.parameters()]) < len([*model.named_parameters(remove_duplicate=False)]):
        refuse("a tied parameter would become two: tie it right after parallelize_module")
    parallelize_module(model, mesh, OUTER)
    for layer in model:
        if isinstance(layer, Block):
            parallelize_module(layer, mesh, INNER)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)

    text = torch.tensor([CHARACTERS.index(character) for character in TEXT])
    batches = torch.Generator().manual_seed(0)  # the same batches on all ranks
    for step in range(1, STEPS + 1):
        starts = torch.randint(len(text) - CONTEXT, (BATCH_SIZE, 1), generator=batches)
        places = starts + torch.arange(CONTEXT)  # each rank computes the whole batch
        x, y = text[places].to(device), text[places + 1].to(device)
        optimizer.zero_grad()
        loss = cross_entropy(model(x).full_tensor().flatten(0, 1), y.flatten(), reduction="sum") / BATCH_SIZE / CONTEXT
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        if step % 10 == 0 and rank == 0:
            print(f"step {step}: loss {loss.item():.6f}")

    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        torch.save(whole, "model.tmp")
        Path("model.tmp").replace("model.pt")
    print(f"rank {rank}/{world_size} end")


if __name__ == "__main__":
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    main()
    dist.destroy_process_group()
