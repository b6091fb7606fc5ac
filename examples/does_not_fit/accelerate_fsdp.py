"""Train a small GPT on characters with Hugging Face Accelerate. Each rank keeps a part of each layer.

    torchrun --standalone --nproc-per-node 4 accelerate_fsdp.py
    sbatch accelerate.sbatch

The trained model goes to model.pt.
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed.nn  # before init_process_group, or its threads never end
from accelerate import Accelerator, DistributedType, FullyShardedDataParallelPlugin, PartialState
from torch import nn
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention

# Stand-in text: sums of two numbers. Put your own text here.
TEXT = "".join(f"{a}+{b}={a + b}\n" for a in range(100) for b in range(100))
CHARACTERS = sorted(set(TEXT))
WIDTH, HEADS, LAYERS = 64, 4, 4
CONTEXT = 32  # characters that the model sees at once
BATCH_SIZE = 32  # of all ranks together
STEPS = 40


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


def main():
    sys.stdout.reconfigure(line_buffering=True, write_through=False)  # print whole lines
    cuda = torch.cuda.is_available()
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2,
        auto_wrap_policy="transformer_based_wrap",
        transformer_cls_names_to_wrap=["Block"],
        cpu_ram_efficient_loading=True,  # each GPU gets its part, never the whole model
    )
    accelerator = Accelerator(cpu=not cuda, fsdp_plugin=plugin)
    if not cuda:  # Accelerate shards on GPUs only, and would copy the model here
        PartialState().distributed_type = accelerator.state.distributed_type = DistributedType.FSDP
        accelerator.state.fsdp_plugin = plugin
    rank, world_size, device = accelerator.process_index, accelerator.num_processes, accelerator.device
    print(f"rank {rank}/{world_size} start host={os.uname().nodename} device={device}")
    if rank == 0 and not cuda and int(os.environ.get("SLURM_GPUS_ON_NODE", 0)):
        print("warning: Slurm gave this job GPUs and PyTorch sees none: training on CPUs")

    torch.manual_seed(0)
    model = gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    model, optimizer = accelerator.prepare(model, optimizer)  # together: sharding replaces the parameters

    text = torch.tensor([CHARACTERS.index(character) for character in TEXT])
    batches = torch.Generator().manual_seed(0)  # the same batches on all ranks
    for step in range(1, STEPS + 1):
        starts = torch.randint(len(text) - CONTEXT, (BATCH_SIZE, 1), generator=batches)
        places = starts[rank::world_size] + torch.arange(CONTEXT)  # the share of this rank
        x, y = text[places].to(device), text[places + 1].to(device)
        optimizer.zero_grad()
        loss = cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum") / BATCH_SIZE / CONTEXT
        accelerator.backward(loss * world_size)  # the ranks average their gradients, and the loss is a sum
        accelerator.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        if step % 10 == 0:
            loss = accelerator.reduce(loss.detach())
            if rank == 0:
                print(f"step {step}: loss {loss.item():.6f}")

    whole = accelerator.get_state_dict(model)  # on all ranks; rank 0 gets it
    if rank == 0:
        torch.save(whole, "model.tmp")
        Path("model.tmp").replace("model.pt")
    accelerator.end_training()
    print(f"rank {rank}/{world_size} end")


if __name__ == "__main__":
    main()
