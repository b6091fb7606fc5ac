"""How far each mesh of sharded_jax.py in the guide *When it does not fit* is from one device, after 20 steps.

python bench/does_not_fit_jax.py            # writes bench/results/does_not_fit_jax.json
python bench/does_not_fit_jax.py --output /tmp/x.json
"""

from __future__ import annotations

import itertools
import math
import tempfile
from importlib.metadata import version
from pathlib import Path

from helpers.fit_jax_trainings import train
from helpers.fit_trainings import STEPS, difference
from helpers.program import options_of, write
from measurements import Configuration

PROGRAM = "sharded_jax.py"
PROCESSES = 2
MESHES = [
    sizes
    for devices in (2, 4, 8)
    for sizes in itertools.product((1, 2, 4, 8), repeat=3)
    if math.prod(sizes) == devices and sizes[2] <= 4  # the heads
]
"""All ways to divide two, four and eight devices into data, shard and tensor."""


def main() -> None:
    """Train on one device in each precision, then on every mesh."""
    options = options_of(__doc__, "does_not_fit_jax")

    configurations = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        expected = {dtype: train(folder, PROGRAM, "data=1", dtype=dtype) for dtype in ("float64", "float32")}
        for data, shard, tensor in MESHES:
            mesh = f"data={data},shard={shard},tensor={tensor}"
            each = data * shard * tensor // PROCESSES
            samples = {}
            for dtype, one in expected.items():
                divided = train(folder, PROGRAM, mesh, processes=PROCESSES, devices=each, dtype=dtype)
                loss, parameter = difference(divided, one)
                samples[f"loss_in_{dtype}"] = [loss]
                samples[f"parameters_in_{dtype}"] = [parameter]
            print(mesh, samples, flush=True)
            configurations.append(Configuration(mesh, {"data": data, "shard": shard, "tensor": tensor}, samples))
    write(
        options.output,
        configurations,
        versions={"jax": version("jax")},
        parameters={"steps": STEPS, "processes": PROCESSES, "difference": "largest absolute"},
    )


if __name__ == "__main__":
    main()
