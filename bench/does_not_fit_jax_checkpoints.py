"""How far a JAX training is from one without a break when each mesh reads what each other one has written.

python bench/does_not_fit_jax_checkpoints.py              # writes bench/results/does_not_fit_jax_checkpoints.json
python bench/does_not_fit_jax_checkpoints.py --only data  # pairs in which data=4 writes or reads

Orbax saves half of the steps of resume_jax.py in the guide *When it does not fit* on one mesh, and another one trains
the rest; the losses and the parameters at the end are compared with those of one device, in float64.
"""

from __future__ import annotations

import math
import re
import shutil
import tempfile
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from helpers import pairs
from helpers.fit_jax_trainings import train
from helpers.fit_trainings import STEPS, difference

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

HALF = {"done + 1, STEPS + 1": f"done + 1, {SAVED + 1}"}


def main() -> None:
    """Train one device, then every pair of meshes: a device to each process that writes, two to each that reads."""
    chosen = pairs.options(__doc__ or "", "does_not_fit_jax_checkpoints")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        one = train(folder / "one", "sharded_jax.py", "data=1")

        def apart(writer: str, reader: str) -> float:
            written = folder / writer
            if not written.exists():
                train(written, "resume_jax.py", MESHES[writer], processes=devices_of(writer), edits=HALF)
            copied = folder / f"{writer} {reader}"
            shutil.copytree(written / "checkpoints", copied / "checkpoints")
            devices = min(2, devices_of(reader))
            processes = devices_of(reader) // devices
            second = train(copied, "resume_jax.py", MESHES[reader], processes=processes, devices=devices)
            return max(difference(replace(second, losses=one.losses[:SAVED] + second.losses), one))

        pairs.measure(
            chosen,
            MESHES,
            apart,
            versions={"jax": version("jax"), "orbax-checkpoint": version("orbax-checkpoint")},
            parameters={"steps": STEPS, "saved_after_step": SAVED},
        )


def devices_of(name: str) -> int:
    """Return how many devices a mesh has."""
    return math.prod(map(int, re.findall(r"\d+", MESHES[name])))


if __name__ == "__main__":
    main()
