"""Train a Llama from a folder of weights, with FSDP between groups of ranks and tensor parallelism within a group.

    torchrun --standalone --nproc-per-node 4 llama_fsdp_tp.py weights 2
    sbatch fsdp.sbatch llama_fsdp_tp.py weights

The folder holds config.json and *.safetensors, as from Hugging Face. A folder "weights" is made if there is none, with
a small random model.
A group has as many ranks as a node, or as many as you say. The trained model goes to "trained", in the same format.
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
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn.functional import cross_entropy

LENGTH = 32  # tokens of a sequence
BATCH_SIZE = 32  # sequences, of all ranks together
STEPS = 40
PRECISION = MixedPrecisionPolicy(torch.bfloat16, reduce_dtype=torch.float32)
OUTER = {
    "model.embed_tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
    "model.norm": SequenceParallel(),
    "lm_head": ColwiseParallel(input_layouts=Shard(1), use_local_output=False),  # each rank: its part of the vocabulary
}
INNER = {  # of each block
    "input_layernorm": SequenceParallel(),
    "self_attn": PrepareModuleInput(input_layouts=(Shard(1), None), desired_input_layouts=(Replicate(), None)),
    "self_attn.q_proj": ColwiseParallel(),
    "self_attn.k_proj": ColwiseParallel(),
    "self_attn.v_proj": ColwiseParallel(),
    "self_attn.o_proj": RowwiseParallel(output_layouts=Shard(1)),
    "post_attention_layernorm": SequenceParallel(),
    "mlp": PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate()),
    "mlp.gate_proj": ColwiseParallel(),
    "mlp.up_proj": ColwiseParallel(),
    "mlp.down_proj": RowwiseParallel(output_layouts=Shard(1)),
}


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
    folder, together = sys.argv[1], int(sys.argv[2] if sys.argv[2:] else os.environ["LOCAL_WORLD_SIZE"])
    if rank == 0 and folder == "weights" and not Path(folder).exists():
        make_small(folder)
    dist.barrier()
    config = read_config(folder)
    if world_size % together:
        refuse(f"{world_size} ranks do not divide into groups of {together}")
    if config.num_key_value_heads % together:
        refuse(f"{config.num_key_value_heads} heads of keys and values do not divide among {together} ranks")
    if LENGTH % together:
        refuse(f"{LENGTH} tokens do not divide among {together} ranks")
    groups = world_size // together
    mesh = init_device_mesh(device.type, (groups, together), mesh_dim_names=("shard", "tensor"))
    group = mesh["shard"].get_local_rank()

    torch.manual_seed(rank)  # for dropout: each rank drops different numbers
    with torch.device("meta"):  # shapes without memory
        model = Llama(config)
    parallelize_module(model, mesh["tensor"], OUTER)
    if config.tie_word_embeddings:
        model.lm_head.weight = model.model.embed_tokens.weight  # parallelize_module has made it two parameters
    for block in model.model.layers:
        parallelize_module(block, mesh["tensor"], INNER)
        fully_shard(block, mesh=mesh["shard"], mp_policy=PRECISION)
    fully_shard(model, mesh=mesh["shard"], mp_policy=PRECISION)  # what is left: embedding, last norm, and head
    model.to_empty(device=device)  # memory for the parts of this rank
    model.model.set_buffers()
    load(model, folder)  # each rank reads its parts
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)

    text = torch.arange(100_000).square() % config.vocab_size  # stand-in tokens: put your own here
    batches = torch.Generator().manual_seed(0)  # the same batches on all ranks
    for step in range(1, STEPS + 1):
        starts = torch.randint(len(text) - LENGTH, (BATCH_SIZE, 1), generator=batches)
        places = starts[group::groups] + torch.arange(LENGTH)  # the share of this group
        x, y = text[places].to(device), text[places + 1].to(device)
        optimizer.zero_grad()
        with loss_parallel():  # no rank ever holds the logits of the whole vocabulary
            loss = cross_entropy(model(x).flatten(0, 1).float(), y.flatten(), reduction="sum") / BATCH_SIZE / LENGTH
            (loss * groups).backward()  # the groups average their gradients, and the loss is a sum
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        if step % 10 == 0:
            loss = loss.detach().full_tensor()
            dist.all_reduce(loss, group=mesh["shard"].get_group())
            if rank == 0:
                print(f"step {step}: loss {loss.item():.6f}")

    save(model, folder, "trained")
    print(f"rank {rank}/{world_size} end")


if __name__ == "__main__":
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    main()
    dist.destroy_process_group()
