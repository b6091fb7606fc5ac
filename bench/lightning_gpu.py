"""What Lightning and mixed precision cost or save on one GPU: the model of full/train.py, with DDP over NCCL.

python bench/lightning_gpu.py --output lightning_gpu.json
python bench/lightning_gpu.py --device cpu --rounds 2 --output here.json

One process trains with plain DDP, with Lightning's, and with Lightning's in mixed precision, in turn in each round.
Needs an NVIDIA GPU; `--device cpu` shows that the program works, and nothing else.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import logging
import os
import socket
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import lightning
import torch
import torch.distributed as dist
from helpers.program import example, write
from measurements import Configuration
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

train = example("lightning/full/train.py")
PRECISIONS = {"Lightning": "32-true", "Lightning, bf16-mixed": "bf16-mixed", "Lightning, 16-mixed": "16-mixed"}
RATE = 0.01


def start(batch: int) -> tuple[Any, train.MLP]:
    """Return the batches of the guide, and its model: from the same parameters, in the same order."""
    lightning.seed_everything(train.SEED, verbose=False)
    data = train.CloudData(batch, 0)
    data.options["generator"] = torch.Generator().manual_seed(train.SEED)
    data.setup("fit")
    return data.train_dataloader(), train.MLP(RATE)


class Clock(lightning.Callback):
    """Notes when steps begin; a GPU is waited for at both ends of what is timed only."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.begun = self.ended = 0.0
        self.steps = 0
        self.loss = float("nan")

    def now(self) -> float:
        """Return the time when the device has done all that it was told."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def note(self, epoch: int, loss: torch.Tensor, *, last: bool) -> None:
        """Note the end of a step; the first epoch warms up."""
        if epoch == 0:
            self.begun = self.now() if last else 0.0
            return
        self.steps += 1
        if last:
            self.ended, self.loss = self.now(), float(loss)

    def on_train_batch_end(self, trainer: lightning.Trainer, _: Any, outputs: Any, *__: Any) -> None:
        """Note the end of Lightning's step."""
        self.note(trainer.current_epoch, outputs["loss"], last=trainer.is_last_batch)

    def step_ms(self) -> float:
        """Return the milliseconds of a step of the second epoch."""
        return 1e3 * (self.ended - self.begun) / self.steps


def plain(batch: int, device: torch.device) -> Clock:
    """Train two epochs with plain DDP."""
    (batches, module), clock = start(batch), Clock(device)
    module.to(device)
    model = DistributedDataParallel(module.layers, device_ids=[device.index] if device.type == "cuda" else None)
    optimizer = module.configure_optimizers()["optimizer"]
    for epoch in range(2):
        for index, (points, labels) in enumerate(batches):
            optimizer.zero_grad()
            loss = cross_entropy(model(points.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
            clock.note(epoch, loss.detach(), last=index + 1 == len(batches))
    return clock


def by_lightning(batch: int, device: torch.device, precision: str) -> Clock:
    """Train the same two epochs with Lightning, with everything off that can be."""
    (batches, module), clock = start(batch), Clock(device)
    trainer = lightning.Trainer(
        accelerator="gpu" if device.type == "cuda" else "cpu",
        devices=1,
        strategy="ddp",
        precision=precision,
        max_epochs=2,
        limit_val_batches=0,
        use_distributed_sampler=False,
        callbacks=[clock],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    module.log = lambda *_, **__: None  # plain DDP logs nothing either
    trainer.fit(module, train_dataloaders=batches)
    return clock


def meet(device: torch.device) -> None:
    """Make a world of one process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ.update({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, rank=0, world_size=1)


def main() -> None:
    """Measure and writes the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("this torch sees no NVIDIA GPU; --device cpu tries the program without one")
    device = torch.device("cuda", 0) if options.device == "cuda" else torch.device("cpu")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    meet(device)
    precisions = {name: one for name, one in PRECISIONS.items() if device.type == "cuda" or one != "16-mixed"}
    steps: dict[str, list[float]] = {}
    losses: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        clocks = {"plain DDP": plain(options.batch, device)}
        clocks |= {name: by_lightning(options.batch, device, one) for name, one in precisions.items()}
        for name, clock in clocks.items():
            steps.setdefault(name, []).append(round(clock.step_ms(), 6))
            losses.setdefault(name, []).append(round(clock.loss, 6))
    base = steps["plain DDP"]
    configurations = []
    for name, values in steps.items():
        more = [round(100 * (value / other - 1), 3) for value, other in zip(values, base, strict=True)]
        samples = {"step_ms": values, "more_percent": more, "last_loss": losses[name]}
        configurations.append(Configuration(name, {"precision": PRECISIONS.get(name, "32-true")}, samples))
    machine = {"device": torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"}
    write(
        options.output,
        configurations,
        versions={package: importlib.metadata.version(package) for package in ("torch", "lightning")},
        parameters={"repeats": options.rounds, "batch": options.batch, "order": "in turn", "warm_up_epochs": 1},
        machine=machine,
    )
    sys.stdout.flush()
    os._exit(0)  # in one step: threads of the transport may still hold tensors


if __name__ == "__main__":
    main()
