"""Draws which process owns which device, and which rows of an array stand on it.

    srunbook simulate --nodes 2 --ntasks-per-node 2 -- python draw_owners.py  # a laptop
    srunbook simulate --nodes 2 --gpus-per-node 4 -- python draw_owners.py    # fewer processes
    srun --nodes=2 --ntasks-per-node=4 python draw_owners.py                  # in a job

You should now see a line for every device, and a picture, `owners.png`.
"""

from __future__ import annotations

import argparse
import os
import socket
from pathlib import Path

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

GREY = "#808080"  # readable on a light and on a dark page
COLOURS = ["#3a73b5", "#b8591d", "#2f7d52", "#9348a3", "#8a6d10", "#b83c50", "#1f7a80"]


def draw(
    path: Path,
    devices: list[jax.Device],
    rows: dict[jax.Device, tuple[int, int, int]],
    node_of: list[int],
) -> None:
    """Draws nodes as frames, devices in the colour of their process, and the array below."""
    figure = Figure(figsize=(8, 3.2))
    axes = figure.subplots()
    centred = {"ha": "center", "va": "center", "fontsize": 9}
    for column, device in enumerate(devices):
        colour = COLOURS[device.process_index % len(COLOURS)]
        axes.add_patch(Rectangle((column + 0.1, 1.15), 0.8, 1.2, facecolor=colour))
        label = f"process\n{device.process_index}\n\n{device}"
        axes.text(column + 0.5, 1.75, label, color="white", **centred)
        axes.plot([column + 0.5] * 2, [0.62, 1.13], color=GREY)
        axes.add_patch(Rectangle((column, 0.1), 1, 0.5, facecolor=colour, edgecolor=GREY))
        first, end, _ = rows[device]
        axes.text(column + 0.5, 0.35, f"x[{first}:{end}]", color="white", **centred)
    for node in sorted(set(node_of)):
        columns = [i for i, device in enumerate(devices) if node_of[device.process_index] == node]
        left, right = min(columns) + 0.04, max(columns) + 0.96
        frame = {"fill": False, "edgecolor": GREY, "linestyle": "--"}
        axes.add_patch(Rectangle((left, 1.0), right - left, 1.5, **frame))
        axes.text((left + right) / 2, 2.65, f"node {node}", color=GREY, **centred)
    axes.text(len(devices) / 2, -0.15, "one global array x", color=GREY, **centred)
    axes.set(xlim=(-0.05, len(devices) + 0.05), ylim=(-0.3, 2.8))
    axes.axis("off")
    figure.savefig(path, dpi=150, transparent=True, bbox_inches="tight")


def main() -> None:
    parser = argparse.ArgumentParser(description="Draws who owns which device and shard.")
    parser.add_argument("--output", type=Path, default=Path("owners.png"))
    output = parser.parse_args().output
    output.parent.mkdir(parents=True, exist_ok=True)

    jax.distributed.initialize()
    rank, world = jax.process_index(), jax.process_count()
    host = os.environ.get("SLURMD_NODENAME", socket.gethostname())
    device, version = jax.local_devices()[0], jax.__version__
    print(f"rank {rank}/{world} start host={host} device={device} framework=jax-{version}", flush=True)

    devices = jax.devices()  # the same list in every process, with the owner of each
    mesh = jax.make_mesh((len(devices),), ("rows",))
    sharding = NamedSharding(mesh, P("rows"))
    mine = np.full((2 * jax.local_device_count(), 4), rank, np.float32)
    x = jax.make_array_from_process_local_data(sharding, mine)

    for shard in x.addressable_shards:
        first, end, _ = shard.index[0].indices(len(x))
        print(f"Process {rank} owns {shard.device} with x[{first}:{end}]")

    # Only Slurm knows the nodes. A collective: every process has to make this call.
    node = np.array([int(os.environ.get("SLURM_NODEID", "0"))])
    node_of = np.ravel(multihost_utils.process_allgather(node)).tolist()
    if rank == 0:
        places = sharding.devices_indices_map(x.shape).items()
        rows = {device: index[0].indices(len(x)) for device, index in places}
        draw(output, devices, rows, node_of)
        print(f"drawn: {output}", flush=True)

    print(f"rank {rank}/{world} end steps=1", flush=True)


if __name__ == "__main__":
    main()
