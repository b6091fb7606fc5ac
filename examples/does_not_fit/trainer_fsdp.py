"""Train a small GPT on characters with the Trainer of Transformers. Each rank keeps a part of each layer.

    torchrun --standalone --nproc-per-node 4 trainer_fsdp.py
    sbatch accelerate.sbatch trainer_fsdp.py

The trained model goes to model.pt.
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed.nn  # before init_process_group, or its threads never end
from accelerate import DistributedType, FullyShardedDataParallelPlugin, PartialState
from torch import nn
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

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


class GPT(nn.Sequential):
    """The layers, one after the other. It returns its loss, as the Trainer wants it."""

    def forward(self, x, labels):
        scores = super().forward(x)
        return {"loss": cross_entropy(scores.flatten(0, 1), labels.flatten()), "logits": scores}


def gpt():
    blocks = [Block() for _ in range(LAYERS)]
    return GPT(Embedding(), *blocks, nn.LayerNorm(WIDTH), nn.Linear(WIDTH, len(CHARACTERS), bias=False))


class Sequences(torch.utils.data.IterableDataset):
    """The same batches on all ranks; the Trainer gives each rank its share."""

    def __iter__(self):
        text = torch.tensor([CHARACTERS.index(character) for character in TEXT])
        batches = torch.Generator().manual_seed(0)
        while True:
            for start in torch.randint(len(text) - CONTEXT, (BATCH_SIZE, 1), generator=batches):
                places = start + torch.arange(CONTEXT)
                yield {"x": text[places], "labels": text[places + 1]}


class Sharding(Trainer):
    def create_accelerator_and_postprocess(self):
        super().create_accelerator_and_postprocess()
        if self.args.use_cpu and self.args.world_size > 1:  # Accelerate shards on GPUs only, and would copy the model
            PartialState().distributed_type = self.accelerator.state.distributed_type = DistributedType.FSDP
            self.accelerator.state.fsdp_plugin = FullyShardedDataParallelPlugin(**self.args.fsdp_plugin_args)
            self.is_fsdp_enabled = True

    def create_optimizer(self, *_, **__):  # weight decay for all parameters, as in the other programs
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.args.learning_rate)
        return self.optimizer


class Losses(TrainerCallback):
    def on_log(self, _args, state, _control, logs, **_):
        step = state.global_step
        if step % 10 == 0 and state.is_world_process_zero and "loss" in logs:
            print(f"step {step}: loss {logs['loss']:.6f}")


def main():
    sys.stdout.reconfigure(line_buffering=True, write_through=False)  # print whole lines
    cuda = torch.cuda.is_available()
    world_size = int(os.environ.get("WORLD_SIZE", 1))
    arguments = TrainingArguments(
        fsdp=True,
        fsdp_config={"transformer_layer_cls_to_wrap": ["Block"], "cpu_ram_efficient_loading": True},
        use_cpu=not cuda,
        per_device_train_batch_size=max(1, BATCH_SIZE // world_size),
        learning_rate=0.003,
        lr_scheduler_type="constant",
        max_grad_norm=0.25,
        max_steps=STEPS,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    rank, device = arguments.process_index, arguments.device
    print(f"rank {rank}/{world_size} start host={os.uname().nodename} device={device}")
    if rank == 0 and not cuda and int(os.environ.get("SLURM_GPUS_ON_NODE", 0)):
        print("warning: Slurm gave this job GPUs and PyTorch sees none: training on CPUs")

    torch.manual_seed(0)
    trainer = Sharding(gpt(), arguments, train_dataset=Sequences(), callbacks=[Losses()])
    trainer.remove_callback(PrinterCallback)
    trainer.train()

    whole = trainer.accelerator.get_state_dict(trainer.model)  # on all ranks; rank 0 gets it
    if rank == 0:
        torch.save(whole, "model.tmp")
        Path("model.tmp").replace("model.pt")
    trainer.accelerator.end_training()
    print(f"rank {rank}/{world_size} end")


if __name__ == "__main__":
    main()
