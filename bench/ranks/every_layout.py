"""Train the model of the guide *When it does not fit* on any mesh: pipeline x data x shard x tensor.

Started by bench/does_not_fit.py on ranks, with the four sizes as arguments. It puts together what the programs in
examples/does_not_fit do one by one, and takes model and plan from the file that has most of them.
"""

import sys

import torch
import torch.distributed as dist
import torch.distributed.nn  # before init_process_group, or its threads never end
from fsdp_tp import BATCH_SIZE, CHARACTERS, CONTEXT, INNER, LAYERS, OUTER, TEXT, Block, gpt
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.nn.functional import cross_entropy

STEPS = 20
PIECES = 4
NAMES = ("pipeline", "data", "shard", "tensor")
LAST = {str(LAYERS + 2): ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())}
"""A pipeline takes plain tensors from its stages."""


def loss_of(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the mean over all characters of a piece."""
    return cross_entropy(output.flatten(0, 1), y.flatten())


def main() -> None:
    """Train, print the loss of each step on one rank, and save each stage's parameters."""
    stages, data, shard, tensor = map(int, sys.argv[1:])
    mesh = init_device_mesh("cpu", (stages, data, shard, tensor), mesh_dim_names=NAMES)
    stage, copy, part, slot = mesh.get_coordinate() or ()
    replicas, replica = data * shard, copy * shard + part
    first, last = stage == 0, stage == stages - 1
    cuts = [0, *(1 + LAYERS * each // stages for each in range(1, stages)), LAYERS + 3]

    torch.manual_seed(0)
    model = gpt()[cuts[stage] : cuts[stage + 1]]
    names = dict(model.named_modules())
    if tensor > 1:
        parallelize_module(model, mesh["tensor"], {name: how for name, how in (OUTER | LAST).items() if name in names})
    for layer in model:
        if isinstance(layer, Block):
            if tensor > 1:
                parallelize_module(layer, mesh["tensor"], INNER)
            fully_shard(layer, mesh=mesh["data", "shard"])
    fully_shard(model, mesh=mesh["data", "shard"])
    group = mesh["pipeline"].get_group()
    schedule = Schedule1F1B(PipelineStage(model, stage, stages, torch.device("cpu"), group=group), PIECES, loss_of)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)

    text = torch.tensor([CHARACTERS.index(character) for character in TEXT])
    batches = torch.Generator().manual_seed(0)
    for step in range(1, STEPS + 1):
        starts = torch.randint(len(text) - CONTEXT, (BATCH_SIZE, 1), generator=batches)
        places = starts[replica::replicas] + torch.arange(CONTEXT)
        optimizer.zero_grad()
        losses: list[torch.Tensor] = []
        given = [text[places]] if first else []
        schedule.step(*given, target=text[places + 1] if last else None, losses=losses)
        norm = nn.utils.get_total_norm([each.grad for each in model.parameters()]).full_tensor().square()
        dist.all_reduce(norm, group=group)
        nn.utils.clip_grads_with_norm_(model.parameters(), 0.25, norm.sqrt())
        optimizer.step()
        if last:
            loss = torch.stack(losses).detach().mean() / replicas
            dist.all_reduce(loss, group=mesh["data"].get_group())
            dist.all_reduce(loss, group=mesh["shard"].get_group())
            if (copy, part, slot) == (0, 0, 0):
                print(f"step {step}: loss {loss.item():.17g}")

    whole = {name: each.full_tensor().detach() for name, each in model.named_parameters()}
    if (copy, part, slot) == (0, 0, 0):
        torch.save(whole, f"model.{stage}.pt")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    main()
    dist.destroy_process_group()
