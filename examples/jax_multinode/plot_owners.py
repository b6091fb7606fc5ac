"""
Which process owns which device and which shard?
================================================

``draw_owners.py`` spreads one array over all devices of the job and draws which device holds each piece.
The first run has one process for each device, on two nodes with two processes each.
"""

import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

from srunbook import simulate


def draw_owners(**layout):
    """Runs the program in a layout; returns what it printed and its picture."""
    with tempfile.TemporaryDirectory() as folder:
        picture = Path(folder) / "owners.png"
        program = [sys.executable, "draw_owners.py", "--output", picture]
        result = simulate.run(program, **layout)
        assert result.returncode == 0, result.failure
        return result, plt.imread(picture)


def show(picture):
    """Puts a picture on this page, point for point."""
    height, width = picture.shape[:2]
    figure = plt.figure(figsize=(width / 100, height / 100), dpi=100)
    figure.patch.set_alpha(0)
    figure.figimage(picture)


result, picture = draw_owners(nodes=2, ntasks_per_node=2)
show(picture)
print("\n".join(line for line in result.output.splitlines() if " owns " in line))

assert result.output.count(" owns ") == 4

# %%
# The second run has one process on each node, with four devices for each process.
# The array is still split along devices. A process sees and fills only the pieces in its own colour.

result, picture = draw_owners(nodes=2, ntasks_per_node=1, gpus_per_node=4)
show(picture)
print("\n".join(line for line in result.output.splitlines() if " owns " in line))

assert result.output.count(" owns ") == 8
