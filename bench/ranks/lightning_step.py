"""Runs programs of examples/lightning/ unchanged, with a clock at their loader; prints what it says as lines of JSON.

Started by srun, by torchrun or alone, from bench/lightning_overhead.py and bench/lightning_nodes.py, which say in JSON
what to run, and put examples/lightning into PYTHONPATH. The clock notes when each batch is asked for, so it sees the
same of a step whoever made the loop.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import same_model
import torch.distributed as dist
from torch import nn

EXAMPLES = Path(same_model.__file__).parent

make_published_model, take_batches, leave = same_model.make_model, same_model.GlobalBatches.__iter__, same_model.leave


class Clock:
    """When the batches of each epoch were asked for, in seconds of `time.perf_counter`."""

    def __init__(self) -> None:
        self.first = 0.0
        self.epochs: list[list[float]] = []

    def watch(self) -> None:
        """Note the batches of every loader from now on."""

        def noted(batches: Any) -> Iterator[list[int]]:
            self.first = self.first or time.time()
            times: list[float] = []
            self.epochs.append(times)
            for batch in take_batches(batches):
                times.append(time.perf_counter())
                yield batch

        same_model.GlobalBatches.__iter__ = noted

    def step_ms(self) -> float:
        """Return the milliseconds of a step from the second epoch on, with what happens between epochs."""
        counted = [moment for epoch in self.epochs[1:] for moment in epoch]
        return 1e3 * (counted[-1] - counted[0]) / (len(counted) - 1)


def wide_model(hidden: int) -> nn.Module:
    """Return a model of three layers, the same in every process, and the threads as the published one sets them."""
    make_published_model()
    features, classes = same_model.FEATURES, same_model.CLASSES
    layers = [nn.Linear(features, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, classes)]
    return nn.Sequential(*layers)


def set_up(case: dict[str, Any]) -> None:
    """Give the programs the size of a case: its model, global batch, steps of an epoch, and epochs."""
    hidden = case.get("hidden")
    same_model.make_model = (lambda: wide_model(hidden)) if hidden else make_published_model
    same_model.GLOBAL_BATCH, same_model.EPOCHS = case["batch"], case["epochs"]
    same_model.SAMPLES = case["batch"] * case["steps"]
    same_model.keep = lambda *_, **__: None  # nothing to print and nothing to save
    same_model.leave = lambda: None  # there may be more cases in this process


def run(case: dict[str, Any]) -> Clock:
    """Run the program of a case from its first line to its last."""
    clock = Clock()
    set_up(case)
    clock.watch()
    if "trainer" not in case:
        runpy.run_path(str(EXAMPLES / case["program"]), run_name="__main__")
    else:
        run_lightning(case)
    made = [len(epoch) for epoch in clock.epochs]
    if made != [case["steps"]] * case["epochs"]:
        raise SystemExit(f"{case['name']}: the clock saw {made} steps")
    return clock


def run_lightning(case: dict[str, Any]) -> None:
    """Run a program with other arguments of the Trainer; `log` is none of them, but logs the loss of each step."""
    import lightning

    class LogLoss(lightning.Callback):
        def on_train_batch_end(self, _: Any, module: Any, outputs: Any, *__: Any) -> None:
            module.log("train_loss", outputs["loss"], prog_bar=True)

    options = dict(case["trainer"])
    callbacks = [LogLoss()] if options.pop("log", False) else []
    trainer = lightning.Trainer
    lightning.Trainer = lambda **given: trainer(**{**given, **options}, callbacks=callbacks)
    try:
        runpy.run_path(str(EXAMPLES / case["program"]), run_name="__main__")
    finally:
        lightning.Trainer = trainer


def main() -> None:
    """Run all cases in their order, and prints a line for each that has a name."""
    launched = float(os.environ.get("LAUNCHED_AT", "nan"))
    meet = dist.init_process_group

    def meet_once(*arguments: Any, **options: Any) -> None:
        if not dist.is_initialized():
            meet(*arguments, **options)

    dist.init_process_group = meet_once
    lines = []
    for case in json.loads(sys.argv[1]):
        clock = run(case)
        if case["name"]:
            sample = {"name": case["name"], "repeat": case["repeat"], "step_ms": round(clock.step_ms(), 6)}
            lines.append("sample " + json.dumps({**sample, "start_s": round(clock.first - launched, 6)}))
    sys.stdout.write("\n" + "\n".join(lines) + "\n")
    sys.stdout.flush()
    if dist.is_initialized():
        leave()


if __name__ == "__main__":
    main()
