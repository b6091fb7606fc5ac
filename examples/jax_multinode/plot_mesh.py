"""
A mesh and four ways to spread an array over it
===============================================

Before you spread an array over nodes, look at a small array in a single process.
This page was built with eight CPU devices in one process.
"""

import jax
import matplotlib.pyplot as plt
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

mesh = jax.make_mesh((4, 2), ("batch", "model"))
print(mesh)
print(mesh.devices)

assert mesh.shape == {"batch": 4, "model": 2}

# %%
# The mesh names two directions, with four devices along ``batch`` and two along ``model``.
# For each axis of an array, a ``PartitionSpec`` says along which direction the axis is split.

COLOURS = ["#3a73b5", "#b8591d", "#2f7d52", "#9348a3"]
COLOURS += ["#8a6d10", "#b83c50", "#1f7a80", "#6a58b5"]
GREY = "#808080"
SHAPE = (8, 4)


def draw(axes, spec, title):
    """Draws an array of eight rows and four columns; returns the number of its blocks."""
    holders = {}
    places = NamedSharding(mesh, spec).devices_indices_map(SHAPE)
    for device, (rows, columns) in places.items():
        block = (*rows.indices(8)[:2], *columns.indices(4)[:2])
        holders.setdefault(block, []).append(device.id)
    for (top, bottom, left, right), ids in holders.items():
        colour = COLOURS[ids[0]] if len(ids) < len(COLOURS) else "#666666"
        size = (right - left, bottom - top)
        axes.add_patch(plt.Rectangle((left, top), *size, facecolor=colour, edgecolor="white"))
        text = "devices\n" + ",".join(map(str, ids)) if len(ids) > 1 else str(ids[0])
        middle = ((left + right) / 2, (top + bottom) / 2)
        axes.text(*middle, text, ha="center", va="center", color="white", fontsize=9)
    axes.set(xlim=(-0.05, 4.05), ylim=(8.05, -0.05), aspect="equal")
    axes.set_title(title, color=GREY, fontsize=10)
    axes.axis("off")
    return len(holders)


figure, axes = plt.subplots(1, 4, figsize=(8, 4.2), layout="constrained")
figure.patch.set_alpha(0)
layouts = [
    (P("batch"), "P('batch')\ndata parallel"),
    (P("batch", "model"), "P('batch', 'model')\ncut both ways"),
    (P(None, "model"), "P(None, 'model')\nmodel parallel"),
    (P(), "P()\nthe whole, everywhere"),
]
pieces = [draw(at, *layout) for at, layout in zip(axes, layouts, strict=True)]

assert pieces == [4, 8, 2, 1]

# %%
# If a block lists several devices, each of them holds a copy.
# Data-parallel training uses ``P('batch')`` for the batch and ``P()`` for the parameters.
#
# The compiler then adds the communication. The mean over a batch that is split four ways needs one all-reduce:

numbers = np.arange(32, dtype=np.float32).reshape(SHAPE)
x = jax.device_put(numbers, NamedSharding(mesh, P("batch")))
mean = jax.jit(lambda a: a.mean(axis=0), out_shardings=NamedSharding(mesh, P()))
program = mean.lower(x).compile().as_text()
print(mean(x))
print(program.count(" all-reduce("), "all-reduce in the compiled program")

assert program.count(" all-reduce(") == 1
assert np.allclose(mean(x), numbers.mean(axis=0))
