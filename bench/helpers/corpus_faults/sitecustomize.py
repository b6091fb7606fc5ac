# ruff: noqa: ANN001, ANN002, ANN003, ANN201, ANN202, ANN204, D103
"""Make a fault inside the ranks of a job. Python imports this file by itself where its folder is on PYTHONPATH.

CORPUS_FAULT names what happens, on which rank (`*` for all) and when: `kill:1:3` ends rank 1 before its third update of
the parameters; `kill:1:meet` does as soon as the processes have met, `:start` before they meet, `:import` when the
framework has been imported. The program stays as it is published.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from support.after_import import AfterImport

MESSAGES = {
    "value": ValueError("could not convert string to float: 'n/a'"),
    "key": KeyError("image"),
    "file": FileNotFoundError(2, "No such file or directory", "data/part-00017.npz"),
    "zero": ZeroDivisionError("division by zero"),
    "index": IndexError("index 4096 is out of bounds for dimension 0 with size 4096"),
    "import": ModuleNotFoundError("No module named 'webdataset'"),
    "disk": OSError(28, "No space left on device", "model.pt"),
    "assert": AssertionError("loss is nan at step 17"),
}
"""Mistakes of users' own programs, which no entry describes."""


def take_all_memory():
    if "torch" in sys.modules:
        import torch

        torch.empty(2**48)
    import jax

    jax.numpy.ones((2**40, 256)).block_until_ready()


def open_no_more():
    import resource

    used = len([*Path("/proc/self/fd").iterdir()])
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 1, used + 1))


def raising(name):
    def fail():
        raise MESSAGES[name]

    return fail


def forget(prefix):
    return lambda: [os.environ.pop(name) for name in list(os.environ) if name.startswith(prefix)]


def other_port():
    os.environ["JAX_COORDINATOR_PORT"] = str(20000 + os.getpid() % 10000)


def proxy():
    os.environ["http_proxy"] = "http://127.0.0.1:9"  # nobody listens there
    os.environ.pop("no_proxy", None)


def devices_first():
    import jax

    jax.devices()


ACTIONS = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "leave": lambda: os._exit(0),
    "terminate": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "memory": take_all_memory,
    "files": open_no_more,
    "late": lambda: time.sleep(12),
    "ports": other_port,
    "proxy": proxy,
    "no-rank": forget("RANK"),
    "no-slurm": forget("SLURM"),
    "no-tasks-per-node": forget("SLURM_NTASKS_PER_NODE"),
    "devices-first": devices_first,
    **{f"raise-{name}": raising(name) for name in MESSAGES},
}

SHORT = 5
"""Seconds that processes wait for each other in place of minutes, where the fault is one that they wait for."""


class Fault:
    """What is to happen in this process."""

    def __init__(self, text):
        self.action, self.rank, self.when = text.split(":")
        self.updates = 0

    def at(self, when):
        """Let it happen if it is time."""
        rank = os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0"))
        if self.when == str(when) and self.rank in ("*", rank):
            ACTIONS.get(self.action, lambda: None)()

    def watch_torch(self, _torch):
        """Take note of torch, which has been imported."""
        from datetime import timedelta

        import torch.distributed as dist
        from torch.optim import optimizer

        self.at("import")
        meet = dist.init_process_group

        def init_process_group(backend=None, *arguments, **options):
            self.at("start")
            if self.action == "late":
                options["timeout"] = timedelta(seconds=SHORT)
            meet("nccl" if self.action == "nccl" else backend, *arguments, **options)
            self.at("meet")

        dist.init_process_group = dist.distributed_c10d.init_process_group = init_process_group
        optimizer.register_optimizer_step_pre_hook(self.before_update)

    def before_update(self, *_):
        """Count the updates."""
        self.updates += 1
        self.at(self.updates)

    def watch_jax(self, jax):
        """Take note of JAX, which has been imported."""
        self.at("import")
        meet = jax.distributed.initialize

        def initialize(*arguments, **options):
            self.at("start")
            if self.action in ("ports", "proxy"):
                options["initialization_timeout"] = SHORT
            meet(*arguments, **options)
            self.at("meet")

        jax.distributed.initialize = initialize


if "CORPUS_FAULT" in os.environ and "torch.distributed.run" not in sys.orig_argv:  # a rank, not the launcher
    fault = Fault(os.environ["CORPUS_FAULT"])
    watched = {"torch": fault.watch_torch, "jax": fault.watch_jax}
    for name in [name for name in watched if name in sys.modules]:
        watched.pop(name)(sys.modules[name])
    sys.meta_path.insert(0, AfterImport(watched))
