"""Draws particles that a run has saved: a histogram of each unknown.

python slurm_multinode_example.py --output particles.npz
python draw_particles.py particles.npz particles.png
"""

import argparse

import matplotlib.pyplot as plt
import numpy as np

parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("particles", help="what --output has written")
parser.add_argument("picture", help="the file to draw, as in particles.png")
options = parser.parse_args()

particles = np.exp(np.load(options.particles)["particles"])  # they are logarithms of the rates
figure, panels = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
for panel, name, values in zip(panels, ("rate", "mutation"), particles.T, strict=True):
    panel.hist(values, bins=20)
    panel.set_xlabel(name)
    low, high = np.quantile(values, [0.05, 0.95])
    print(f"{name}: mean {values.mean():.3f}, 90 % of the particles from {low:.3f} to {high:.3f}")
figure.savefig(options.picture)
