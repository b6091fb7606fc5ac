"""Train a small GPT on characters, on all GPUs of all nodes, or on CPUs, and print how fast that was.

    torchrun --standalone --nproc-per-node 2 throughput_gpt.py
    sbatch fsdp.sbatch throughput_gpt.py

The trained model goes to model.pt.
"""

import os
import sys
from pathlib import Path
from time import perf_counter

import torch
import torch.distributed as dist
import torch.distributed.nn  # before init_process_group, or its threads never end
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention
from torch.utils.flop_counter import FlopCounterMode

# Stand-in text: sums of two numbers. Put your own text here.
TEXT = "".join(f"{a}+{b}={a + b}\n" for a in range(100) for b in range(100))
CHARACTERS = sorted(set(TEXT))
WIDTH, HEADS, LAYERS = 64, 4, 4
CONTEXT = 32  # characters that the model sees at once
BATCH_SIZE = 32  # of all ranks together
STEPS = 40
WARM_UP = 10  # steps that don't count
PEAK = 989e12  # EDIT: FLOP/s of your GPU in the precision of your program; an H100 in bfloat16
PRECISION = MixedPrecisionPolicy(torch.bfloat16, reduce_dtype=torch.float32, output_dtype=torch.float32)


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
    device = torch.device(f"cuda:{os.environ['LOCAL_RANK']}" if cuda else "cpu")
    if cuda:
        torch.cuda.set_device(device)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank}/{world_size} start host={os.uname().nodename} device={device}")
    if rank == 0 and not cuda and int(os.environ.get("SLURM_GPUS_ON_NODE", 0)):
        print("warning: Slurm gave this job GPUs and PyTorch sees none: training on CPUs")

    torch.manual_seed(0)
    with torch.device("meta"):  # shapes without memory
        model = gpt()
        with FlopCounterMode(display=False) as counter:  # one sequence
            model(torch.zeros(1, CONTEXT, dtype=torch.long)).sum().backward()
        model.zero_grad()
    for layer in model:
        if isinstance(layer, Block):
            fully_shard(layer, mp_policy=PRECISION)
    fully_shard(model)  # what is left: the first layer and the last ones, in 32 bits
    model.to_empty(device=device)  # memory for the parts of this rank
    weights = gpt().state_dict() if rank == 0 else {}
    set_model_state_dict(model, weights, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)

    text = torch.tensor([CHARACTERS.index(character) for character in TEXT])
    batches = torch.Generator().manual_seed(0)  # the same batches on all ranks
    started = perf_counter()
    for step in range(1, STEPS + 1):
        starts = torch.randint(len(text) - CONTEXT, (BATCH_SIZE, 1), generator=batches)
        places = starts[rank::world_size] + torch.arange(CONTEXT)  # the share of this rank
        x, y = text[places].to(device), text[places + 1].to(device)
        optimizer.zero_grad()
        loss = cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum") / BATCH_SIZE / CONTEXT
        (loss * world_size).backward()  # the ranks average their gradients, and the loss is a sum
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        if step in (WARM_UP, STEPS):
            if cuda:
                torch.cuda.synchronize()  # a GPU computes while Python runs on
            started, seconds = perf_counter(), perf_counter() - started
        if step % 10 == 0:
            dist.all_reduce(loss.detach_())
            if rank == 0:
                print(f"step {step}: loss {loss.item():.6f}")

    sequences = BATCH_SIZE * (STEPS - WARM_UP) / seconds  # each second
    speed = counter.get_total_flops() * sequences / world_size
    if rank == 0:
        print(f"{CONTEXT * sequences:.0f} tokens/s, {CONTEXT * sequences / world_size:.0f} tokens/s on each device")
        print(f"{speed / 1e9:.2f} GFLOP/s on each device" + (f", MFU {speed / PEAK:.1%}" if cuda else ""))

    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        torch.save(whole, "model.tmp")
        Path("model.tmp").replace("model.pt")
    print(f"rank {rank}/{world_size} end")


if __name__ == "__main__":
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    main()
    dist.destroy_process_group()
