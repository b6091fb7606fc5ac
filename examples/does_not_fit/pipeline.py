"""Train a small GPT on characters, on all GPUs of all nodes, or on CPUs. Each rank computes some of the layers.

    torchrun --standalone --nproc-per-node 4 pipeline.py
    sbatch --nodes=2 fsdp.sbatch pipeline.py

The layers of rank 0 go to model.0.pt, those of rank 1 to model.1.pt, and so on.
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.nn  # before init_process_group, or its threads never end
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention

assert torch.__version__ >= (2, 10), f"needs PyTorch 2.10 or newer, found {torch.__version__}"

# Stand-in text: sums of two numbers. Put your own text here.
TEXT = "".join(f"{a}+{b}={a + b}\n" for a in range(100) for b in range(100))
CHARACTERS = sorted(set(TEXT))
WIDTH, HEADS, LAYERS = 64, 4, 4
CONTEXT = 32  # characters that the model sees at once
BATCH_SIZE = 32  # of all ranks together
STEPS = 40
PIECES = 8  # a batch goes through the pipeline in so many pieces


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


def loss_of(output, y):
    return cross_entropy(output.flatten(0, 1), y.flatten())


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
    if world_size > LAYERS:
        refuse(f"{LAYERS} blocks are too few for {world_size} stages")
    if BATCH_SIZE % PIECES:
        refuse(f"{BATCH_SIZE} sequences do not divide into {PIECES} pieces")
    first, last = rank == 0, rank == world_size - 1
    cuts = [0, *(1 + LAYERS * stage // world_size for stage in range(1, world_size)), LAYERS + 3]

    torch.manual_seed(0)
    model = gpt()
    if len([*model.parameters()]) < len([*model.named_parameters(remove_duplicate=False)]):
        refuse("two stages cannot share a tied parameter")
    model = model[cuts[rank] : cuts[rank + 1]].to(device)  # the names stay those of the whole model
    schedule = Schedule1F1B(PipelineStage(model, rank, world_size, device), PIECES, loss_of)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)

    text = torch.tensor([CHARACTERS.index(character) for character in TEXT])
    batches = torch.Generator().manual_seed(0)  # the same batches on all ranks
    for step in range(1, STEPS + 1):
        starts = torch.randint(len(text) - CONTEXT, (BATCH_SIZE, 1), generator=batches)
        places = starts + torch.arange(CONTEXT)  # the whole batch
        x, y = text[places].to(device), text[places + 1].to(device)
        optimizer.zero_grad()
        losses = []
        schedule.step(*([x] if first else []), target=y if last else None, losses=losses)
        gradients = [parameter.grad for parameter in model.parameters()]
        norm = nn.utils.get_total_norm(gradients).square()
        dist.all_reduce(norm)  # over all layers
        nn.utils.clip_grads_with_norm_(model.parameters(), 0.25, norm.sqrt())
        optimizer.step()
        if step % 10 == 0 and last:
            print(f"step {step}: loss {torch.stack(losses).mean().item():.6f}")

    torch.save(model.state_dict(), f"model.{rank}.tmp")
    Path(f"model.{rank}.tmp").replace(f"model.{rank}.pt")
    print(f"rank {rank}/{world_size} end")


if __name__ == "__main__":
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    main()
    dist.destroy_process_group()
