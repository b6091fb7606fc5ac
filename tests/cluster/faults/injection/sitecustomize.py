"""Make faults inside the ranks of a test job, at a rank, a step and a phase. Python imports this file by itself.

The folder of this file is on the job's PYTHONPATH, so that the program under test stays as it is published. The
variable SRUNBOOK_FAULTS names the faults, as in `kill:1:7:backward;hold:0:7:data`: what happens, on which rank, at
which step of the process, in which phase. A fault happens once in the life of a job: a file in the job's folder
remembers it, also when Slurm has started the job again. With `:always` at its end it happens at each start.

phase     when
data      before the forward pass of the step (of step 1: of the warm-up before it)
backward  in the middle of its backward pass
update    before the optimizer changes the parameters
step      after that
save      in a save that follows it, after the data were written and before they count

Every fault is on record in `events.jsonl` before it happens, with the time. So is every exception that ends a rank.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import signal
import socket
import sys
import threading
import time
import types
from dataclasses import dataclass
from pathlib import Path

from support.after_import import AfterImport


def note(event, **details):
    """Put something on record, in one piece."""
    details |= {"restart": int(os.environ.get("SLURM_RESTART_COUNT", 0)), "job": os.environ.get("SLURM_JOB_ID")}
    details |= {"rank": int(os.environ["RANK"]), "time": time.time()}
    stream = os.open("events.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(stream, (json.dumps({"event": event, **details}) + "\n").encode())
    os.close(stream)


@dataclass
class Fault:
    """One fault, as SRUNBOOK_FAULTS names it."""

    text: str
    action: str
    rank: int
    step: int
    phase: str
    always: bool

    @classmethod
    def of(cls, text):
        """Read a fault, as in `kill:1:7:backward`."""
        action, rank, step, phase, *more = text.split(":")
        return cls(text, action, int(rank), int(step), phase, more == ["always"])

    @property
    def file(self):
        """The file that remembers that it has happened."""
        return Path("fault-" + self.text.replace(":", "-"))

    def due(self, step, phase):
        """Tell whether it is to happen now."""
        return (self.step, self.phase) == (step, phase) and (self.always or not self.file.exists())

    def happen(self, parameters):
        """Let it happen, and put it on record before and, where it does not end the process, after."""
        self.file.touch()
        note("fault", fault=self.text)
        ACTIONS[self.action](self, parameters)
        note("over", fault=self.text)


def failing(fault, parameters):
    raise RuntimeError(f"the fault {fault.text}")


def awaiting_file(fault, parameters):
    """Wait until the test has done something outside, and said so by a file."""
    while not Path(f"{fault.file}.go").exists():
        time.sleep(0.02)


def awaiting_signal(fault, parameters):
    """Wait until the program has been given one more signal, and its handler was called."""
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    before = signal.set_wakeup_fd(writer.fileno())
    select.select([reader], [], [])
    signal.set_wakeup_fd(before)
    reader.close()
    writer.close()


def spoiling(fault, parameters):
    for parameter in parameters:
        parameter.grad.fill_(float("nan"))


ACTIONS = {
    "kill": lambda fault, parameters: os.kill(os.getpid(), signal.SIGKILL),
    "stop": lambda fault, parameters: os.kill(os.getpid(), signal.SIGSTOP),
    "raise": failing,
    "hold": lambda fault, parameters: threading.Event().wait(),
    "wait": awaiting_file,
    "signal": awaiting_signal,
    "nan": spoiling,
    "mark": lambda fault, parameters: None,
}


class Steps:
    """Count the steps of this process, and let the faults happen."""

    def __init__(self, faults):
        self.faults = faults
        self.made = 0
        self.images = ()

    def at(self, phase, step, parameters=()):
        """Let happen what is due in this phase of this step."""
        for fault in self.faults:
            if fault.due(step, phase):
                fault.happen(parameters)

    def watch_torch(self, _torch):
        """Take note of torch, which has been imported."""
        from torch.nn.modules import module
        from torch.optim import optimizer

        module.register_module_forward_pre_hook(self.before_forward)
        module.register_module_forward_hook(self.after_forward)
        optimizer.register_optimizer_step_pre_hook(self.before_update)
        optimizer.register_optimizer_step_post_hook(self.after_update)

    def watch_saves(self, files):
        """Take note of the module that writes checkpoints, which has been imported."""
        fsync = os.fsync

        def watched(number):
            fsync(number)
            self.at("save", self.made)

        files.os = types.SimpleNamespace(**{**vars(os), "fsync": watched})

    def before_forward(self, module, inputs):
        """Reach the phase data."""
        if type(module).__name__ == "DistributedDataParallel" and module.training:
            self.at("data", self.made + 1)
            self.images = inputs[0]

    def after_forward(self, module, inputs, output):
        """Reach the phase backward: when the gradient comes to the pooling, in the middle of the network."""
        if type(module).__name__ == "MaxPool2d" and output.requires_grad:
            output.register_hook(lambda gradient: self.at("backward", self.made + 1))

    def before_update(self, optimizer, *_):
        """Reach the phase update; on request also put on record which images the step has seen."""
        if "SRUNBOOK_BATCHES" in os.environ:
            images = [hashlib.sha256(image.numpy().tobytes()).hexdigest()[:16] for image in self.images]
            note("batch", step=self.made + 1, images=images)
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        self.at("update", self.made + 1, parameters)

    def after_update(self, *_):
        """Reach the phase step."""
        self.made += 1
        self.at("step", self.made)


def note_exception(kind, error, trace):
    note("raised", kind=kind.__name__, message=str(error)[:500])
    sys.__excepthook__(kind, error, trace)


if "SRUNBOOK_FAULTS" in os.environ and "RANK" in os.environ:  # a rank, not the launcher
    found = [Fault.of(text) for text in os.environ["SRUNBOOK_FAULTS"].split(";") if text]
    steps = Steps([fault for fault in found if fault.rank == int(os.environ["RANK"])])
    functions = {"torch": steps.watch_torch, "files": steps.watch_saves}
    sys.meta_path.insert(0, AfterImport(functions))
    sys.excepthook = note_exception
