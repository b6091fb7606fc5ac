"""What a larger batch and a larger learning rate do to a training: the model of examples/lightning/full/train.py.

python bench/lightning_rates.py        # writes bench/results/lightning_rates.json
python bench/lightning_rates.py --cases 32 --rates 0.001 0.01 --epochs 50 --output bench/results/lightning_epochs.json

One process trains with 32 samples in an iteration, as on one GPU, and with 256, as on eight. The rate stays, or grows
with the batch (the linear rule), at once or in some steps of warm-up. Times do not matter here, so no quiet machine.
"""

from __future__ import annotations

import importlib.metadata
import logging
import math
import warnings
from typing import Any

import lightning
import torch
from helpers.program import example, options_of, write
from measurements import Configuration

train = example("lightning/full/train.py")
RATES = (0.01, 0.1)
"""For a batch of 32."""

SMALL, LARGE, WARM_UP = 32, 256, 56  # two epochs of 28 iterations
CASES = {
    "32": (SMALL, False, 0),
    "256": (LARGE, False, 0),
    "256, rule": (LARGE, True, 0),
    "256, rule and warm-up": (LARGE, True, WARM_UP),
}
"""Batch, whether the rate grows with it, and steps of warm-up."""


class Curve(lightning.Callback):
    """Notes what an epoch came to."""

    def __init__(self) -> None:
        self.train_loss: list[float] = []
        self.accuracy: list[float] = []

    def on_train_epoch_end(self, trainer: lightning.Trainer, _: Any) -> None:
        """Note the loss of the training and the accuracy of the validation."""
        self.train_loss.append(float(trainer.callback_metrics["train_loss"]))
        self.accuracy.append(100 * float(trainer.callback_metrics["val_accuracy"]))


def curve(batch: int, rate: float, warm_up: int, epochs: int, seed: int) -> Curve:
    """Train once; the points stay, and the seed decides the first parameters and the order of the samples."""
    lightning.seed_everything(seed, verbose=False)
    noted = Curve()
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=epochs,
        callbacks=[noted],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(train.MLP(rate, warm_up), datamodule=train.CloudData(batch, 0))
    return noted


def main() -> None:
    """Train the cases and write the file: one configuration for each epoch, one sample for each seed."""
    options = options_of(__doc__, "lightning_rates", seeds=5, epochs=10)
    torch.set_num_threads(1)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")

    configurations = []
    for base in RATES:
        for case, (batch, rule, warm_up) in CASES.items():
            rate = base * batch / SMALL if rule else base
            curves = [curve(batch, rate, warm_up, options.epochs, seed) for seed in range(options.seeds)]
            for epoch in range(options.epochs):
                losses, accuracies = zip(*((one.train_loss[epoch], one.accuracy[epoch]) for one in curves), strict=True)
                parameters = {"base_rate": base, "case": case, "batch": batch, "rate": rate, "warm_up_steps": warm_up}
                samples = {"val_accuracy_percent": [round(value, 3) for value in accuracies]}
                if all(map(math.isfinite, losses)):
                    samples["train_loss"] = [round(value, 5) for value in losses]
                name = f"{case}, {base} for a batch of {SMALL}, epoch {epoch + 1}"
                configurations.append(Configuration(name, {**parameters, "epoch": epoch + 1}, samples))
            last = configurations[-1].samples
            print(f"{base:5} {case:22} rate {rate:5.2f}: {last}", flush=True)
    write(
        options.output,
        configurations,
        versions={package: importlib.metadata.version(package) for package in ("torch", "lightning")},
        parameters={"seeds": options.seeds, "momentum": 0.9, "samples": 7000},
        machine={"threads": 1},
    )


if __name__ == "__main__":
    main()
