"""Checkpoints of `resume_jax.py` in the guide *When it does not fit*: one mesh writes, another reads and trains on."""

from __future__ import annotations

import math
import re
import shutil
from pathlib import Path

import numpy as np
from support.jax_layouts import STEPS, Training, losses_of, train

PROGRAM = "resume_jax.py"

SAVED = 10
"""Step after which the training that writes ends."""

MESHES = {
    "data": "data=4",
    "shard": "shard=4",
    "tensor": "tensor=4",
    "data_and_shard": "data=2,shard=2",
    "data_and_tensor": "data=2,tensor=2",
    "shard_and_tensor": "shard=2,tensor=2",
    "one_device": "data=1",
}
"""All ways to divide four devices, and one device."""

ONE_AFTER_ANOTHER = """    for mesh, name in {!r}:
        sys.argv[1:] = ["--mesh", mesh]
        CHECKPOINTS = Path(name)
        if jax.process_index() == 0:
            print("next", flush=True)
        main()
        if jax.process_index() == 0:
            os.rename(f"model-{{RUN}}.npz", name + ".npz")
"""
"""What takes the place of one training: several, with a mesh and a folder of checkpoints each."""


def devices_of(mesh: str) -> int:
    """Return how many devices a mesh has.

    >>> devices_of("shard=2,tensor=2")
    4
    """
    return math.prod(map(int, re.findall(r"\d+", mesh)))


def write(folder: Path) -> dict[str, Training]:
    """Train the first half of the steps on every mesh, a device to each process, and leave the checkpoints here."""
    half = {"done + 1, STEPS + 1": f"done + 1, {SAVED + 1}"}
    found = {}
    for devices in (4, 1):
        names = [name for name, mesh in MESHES.items() if devices_of(mesh) == devices]
        runs = {name: (MESHES[name], folder / name) for name in names}
        found |= several(folder / f"on{devices}", runs, processes=devices, devices=1, edits=half)
    return found


def read(written: Path, folder: Path, name: str, edits: dict[str, str] | None = None) -> dict[str, Training]:
    """Train the second half on a mesh, once from the checkpoint of each; return the trainings by who wrote.

    Four devices are those of two processes, and were those of four before.
    """
    runs = {writer: (MESHES[name], folder / f"from_{writer}") for writer in MESHES}
    for writer, (_, checkpoints) in runs.items():
        shutil.copytree(written / writer, checkpoints)
    devices = min(2, devices_of(MESHES[name]))
    processes = devices_of(MESHES[name]) // devices
    found = several(folder / "run", runs, processes=processes, devices=devices, edits=edits)
    for each in found.values():
        assert each.text.count(f"resumed after step {SAVED}\n") == 1, each.text
        assert list(each.losses) == list(range(SAVED + 1, STEPS + 1)), each.text
    return found


def several(
    folder: Path, runs: dict[str, tuple[str, Path]], *, processes: int, devices: int, edits: dict[str, str] | None
) -> dict[str, Training]:
    """Train several times in the same processes, on a mesh and with a folder of checkpoints each."""
    loop = ONE_AFTER_ANOTHER.format([(mesh, str(checkpoints)) for mesh, checkpoints in runs.values()])
    own = (edits or {}) | {"    main()\n": loop}
    whole = train(folder, PROGRAM, MESHES["data"], processes=processes, devices=devices, edits=own)
    assert whole.status == 0, whole.text
    _, *texts = re.split(r"^(?:\[0\] )?next\n", whole.text, flags=re.MULTILINE)
    return {
        name: Training(whole.status, text, losses_of(text), dict(np.load(f"{checkpoints}.npz")))
        for (name, (_, checkpoints)), text in zip(runs.items(), texts, strict=True)
    }
