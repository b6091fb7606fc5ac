"""Train a small GPT on characters with Lightning, on GPUs or CPUs. FSDP between nodes, tensors within.

    srunbook simulate --nodes 2 --ntasks-per-node 2 -- python lightning_fsdp_tp.py
    sbatch lightning.sbatch

A number behind the name says how many ranks compute a layer together; without it, those of a node do.
The trained model goes to model.pt.
"""

import os
import sys
from pathlib import Path

import lightning
import torch
import torch.distributed as dist
import torch.distributed.nn  # before init_process_group, or its threads never end
from lightning.pytorch.plugins.environments import SLURMEnvironment
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
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
PRECISION = MixedPrecisionPolicy(torch.bfloat16, reduce_dtype=torch.float32, output_dtype=torch.float32)
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


class Training(lightning.LightningModule):
    """The model, its batches, and a step."""

    def configure_model(self):  # the ranks are connected now
        device, mesh = self.trainer.strategy.root_device, self.device_mesh
        together = mesh["tensor_parallel"].size()
        if HEADS % together:
            refuse(f"{HEADS} heads do not divide among {together} ranks")
        if CONTEXT % together:
            refuse(f"{CONTEXT} characters do not divide among {together} ranks")
        torch.manual_seed(0)
        with torch.device("meta"):  # shapes without memory
            model = gpt()
        if len([*model.parameters()]) < len([*model.named_parameters(remove_duplicate=False)]):
            refuse("a tied parameter would become two: tie it right after parallelize_module")
        parallelize_module(model, mesh["tensor_parallel"], OUTER)
        for layer in model:
            if isinstance(layer, Block):
                parallelize_module(layer, mesh["tensor_parallel"], INNER)
                fully_shard(layer, mesh=mesh["data_parallel"], mp_policy=PRECISION)
        fully_shard(model, mesh=mesh["data_parallel"])  # what is left: the first layer and the last ones, in 32 bits
        model.to_empty(device=device)  # memory for the parts of this rank
        weights = gpt().state_dict() if self.global_rank == 0 else {}
        set_model_state_dict(model, weights, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
        self.model = model

    def configure_optimizers(self):
        return torch.optim.AdamW(self.model.parameters(), lr=0.003)

    def train_dataloader(self):
        groups, group = self.device_mesh["data_parallel"].size(), self.device_mesh["data_parallel"].get_local_rank()
        text = torch.tensor([CHARACTERS.index(character) for character in TEXT])
        batches = torch.Generator().manual_seed(0)  # the same batches on all ranks
        while True:
            starts = torch.randint(len(text) - CONTEXT, (BATCH_SIZE, 1), generator=batches)
            places = starts[group::groups] + torch.arange(CONTEXT)  # the share of this group
            yield text[places], text[places + 1]

    def training_step(self, batch, number):
        x, y = batch
        shard, step = self.device_mesh["data_parallel"], number + 1
        loss = cross_entropy(self.model(x).full_tensor().flatten(0, 1), y.flatten(), reduction="sum")
        loss = loss / BATCH_SIZE / CONTEXT
        if step % 10 == 0:
            whole = self.trainer.strategy.reduce(loss.detach(), shard.get_group(), "sum")
            self.print(f"step {step}: loss {whole.item():.6f}")
        return loss * shard.size()  # the groups average their gradients, and the loss is a sum


def main():
    sys.stdout.reconfigure(line_buffering=True, write_through=False)  # print whole lines
    nodes, each = int(os.environ.get("SLURM_NNODES", 1)), int(os.environ.get("SLURM_NTASKS_PER_NODE", 1))
    together = int(sys.argv[1]) if sys.argv[1:] else each
    trainer = lightning.Trainer(
        num_nodes=nodes,
        devices=each,
        strategy=ModelParallelStrategy(nodes * each // max(together, 1), together),  # FSDP, tensor parallelism
        plugins=[SLURMEnvironment(auto_requeue=False)] if SLURMEnvironment.detect() else None,
        default_root_dir="lightning-" + os.environ.get("SLURM_JOB_ID", "run"),  # of this job alone
        gradient_clip_val=0.25,
        max_steps=STEPS,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    rank, world_size, device = trainer.global_rank, trainer.world_size, trainer.strategy.root_device
    print(f"rank {rank}/{world_size} start host={os.uname().nodename} device={device}")
    if rank == 0 and device.type == "cpu" and int(os.environ.get("SLURM_GPUS_ON_NODE", 0)):
        print("warning: Slurm gave this job GPUs and PyTorch sees none: training on CPUs")

    training = Training()
    trainer.fit(training)

    whole = get_model_state_dict(training.model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        torch.save(whole, "model.tmp")
        Path("model.tmp").replace("model.pt")
    print(f"rank {rank}/{world_size} end")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
