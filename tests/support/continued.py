"""Checkpoints of the guide *When it does not fit*: one layout writes, another reads and trains on.

The functions that save and load are those of `resume.py`, imported into the other programs of the guide.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from support import forked
from support.one_oracle import PROGRAMS, STEPS, Training, train

SAVED = 10
"""Step after which a layout writes."""

Layout = tuple[str, int, int]
"""Program, nodes, ranks on each."""

LAYOUTS: dict[str, Layout] = {
    "DDP": ("ddp.py", 1, 4),
    "FSDP": ("fsdp.py", 1, 4),
    "HSDP": ("hsdp.py", 2, 2),
    "tensor": ("tensor_parallel.py", 1, 4),
    "FSDP_and_tensor": ("fsdp_tp.py", 2, 2),
    "pipeline": ("pipeline.py", 1, 4),
    "FSDP_on_1": ("fsdp.py", 1, 1),
    "FSDP_on_2": ("fsdp.py", 1, 2),
}
"""On four ranks unless the name says otherwise."""

LOOP = "    for step in range(1, STEPS + 1):\n"
UPDATE = "        optimizer.step()\n"
IMPORT = """    import resume
    resume.CHECKPOINTS = resume.Path({!r})
"""


def write(ranks: forked.Forked, layout: Layout, folder: Path, edits: dict[str, str] | None = None) -> Training:
    """Train the steps up to the checkpoint, and write it; the program may have some text replaced."""
    save = f"        if step == {SAVED}:\n            resume.save(model, optimizer, batches, step)\n"
    return train(
        ranks,
        PROGRAMS / layout[0],
        *layout[1:],
        edits=(edits or {}) | {LOOP: f"{IMPORT.format(str(folder))}{LOOP}", UPDATE: UPDATE + save},
        steps=SAVED,
    )


def read(
    ranks: forked.Forked, layout: Layout, folder: Path, before: Training, edits: dict[str, str] | None = None
) -> Training:
    """Train the steps after the checkpoint; return them behind the losses of those before."""
    load = f"{IMPORT.format(str(folder))}    done = resume.load(model, optimizer, batches)\n"
    own = {LOOP: load + LOOP.replace("1,", "done + 1,")}
    found = train(ranks, PROGRAMS / layout[0], *layout[1:], edits=(edits or {}) | own)
    assert not any(found.statuses), found.text
    assert len(found.losses) == STEPS - SAVED, found.text
    return replace(found, losses=before.losses[:SAVED] + found.losses)
