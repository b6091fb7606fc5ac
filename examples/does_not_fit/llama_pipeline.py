"""Train a Llama from a folder of weights, as a pipeline: each rank computes some of the layers.

    torchrun --standalone --nproc-per-node 4 llama_pipeline.py weights
    sbatch --gpus-per-node=1 fsdp.sbatch llama_pipeline.py weights

The folder holds config.json and *.safetensors, as from Hugging Face. A folder "weights" is made if there is none, with
a small random model.
The trained model goes to "trained", in the same format.
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.nn  # before init_process_group, or its threads never end
from llama import Llama, make_small, read_config
from pretrained import load, save
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn.functional import cross_entropy

LENGTH = 32  # tokens of a sequence
BATCH_SIZE = 32  # sequences, of all ranks together
STEPS = 40
PIECES = 8  # a batch goes through the pipeline in this many pieces


class Skip(nn.Module):
    """Takes the place of a layer that another rank computes."""

    def forward(self, x, *_):
        return x


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
    folder = sys.argv[1]
    if rank == 0 and folder == "weights" and not Path(folder).exists():
        make_small(folder)
    dist.barrier()
    config = read_config(folder)
    layers = config.num_hidden_layers
    if config.tie_word_embeddings:
        refuse("two stages cannot share a tied parameter")
    if world_size > layers:
        refuse(f"{layers} blocks are too few for {world_size} stages")
    if BATCH_SIZE % PIECES:
        refuse(f"{BATCH_SIZE} sequences do not divide into {PIECES} pieces")
    first, last = rank == 0, rank == world_size - 1
    mine = range(layers * rank // world_size, layers * (rank + 1) // world_size)

    with torch.device("meta"):  # shapes without memory
        model = Llama(config)
    if not first:
        model.model.embed_tokens = Skip()
    for number in set(range(layers)) - set(mine):
        model.model.layers[number] = Skip()
    if not last:
        model.model.norm = model.lm_head = Skip()
    model.to_empty(device=device)  # memory for the layers of this rank
    model.model.set_buffers()
    load(model, folder)  # each rank reads its layers
    schedule = Schedule1F1B(PipelineStage(model, rank, world_size, device), PIECES, loss_of)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)

    text = torch.arange(100_000).square() % config.vocab_size  # stand-in tokens: put your own here
    batches = torch.Generator().manual_seed(0)  # the same batches on all ranks
    for step in range(1, STEPS + 1):
        starts = torch.randint(len(text) - LENGTH, (BATCH_SIZE, 1), generator=batches)
        places = starts + torch.arange(LENGTH)  # the whole batch
        x, y = text[places].to(device), text[places + 1].to(device)
        optimizer.zero_grad()
        losses = []
        schedule.step(*([x] if first else []), target=y if last else None, losses=losses)
        norm = nn.utils.get_total_norm([weight.grad for weight in model.parameters()]).square()
        dist.all_reduce(norm)  # over all layers
        nn.utils.clip_grads_with_norm_(model.parameters(), 0.25, norm.sqrt())
        optimizer.step()
        if step % 10 == 0 and last:
            print(f"step {step}: loss {torch.stack(losses).mean().item():.6f}")

    save(model, folder, "trained")
    print(f"rank {rank}/{world_size} end")


if __name__ == "__main__":
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    main()
    dist.destroy_process_group()
