"""
The particles beside the exact posterior
========================================

``coalescent_posterior.py`` estimates two rates of a population from simulated genealogies.
Two processes share the 200 particles.
For two rates, the exact posterior can be summed on a grid, from closed forms that share no code with the library.
"""

import re
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from coalescent_posterior import exact_posterior

from srunbook import simulate

with tempfile.TemporaryDirectory() as folder:
    output = Path(folder, "posterior.npz")
    result = simulate.run([sys.executable, "coalescent_posterior.py", f"--output={output}"], nodes=2, timeout=120)
    assert result.returncode == 0, result.failure
    with np.load(output) as saved:
        particles, heights, counts = (saved[name] for name in ("particles", "heights", "counts"))
lines = [line for line in result.ranks[0].output.splitlines() if "exact" in line]
print("\n".join(lines))

assert len(lines) == 4
assert all(abs(float(re.findall(r"(\S+) %", line)[0])) < 5 for line in lines)

# %%
# The lines enclose 50, 80 and 95 % of the exact posterior.

*sides, probabilities = exact_posterior(heights, counts)
falling = np.sort(probabilities, axis=None)[::-1]
levels = [falling[np.searchsorted(np.cumsum(falling), share)] for share in (0.95, 0.8, 0.5)]

figure, axes = plt.subplots(figsize=(4.5, 4), layout="constrained")
axes.contour(*map(np.exp, sides), probabilities.T, levels=levels, colors="gray", linewidths=1)
axes.scatter(*np.exp(particles.T), s=8, color="#0b63a5")
axes.set(xlabel="rate of joining", ylabel="rate of mutation", xlim=(1, 3.6), ylim=(1.4, 5.4))

# %%
# For each rate, these plots compare the share of particles below a value with the exact distribution function.

figure, places = plt.subplots(1, 2, figsize=(8, 3), layout="constrained", sharey=True)
names = ("rate of joining", "rate of mutation")
for axis, (axes, name) in enumerate(zip(places, names, strict=True)):
    shares = np.cumsum(probabilities.sum(axis=1 - axis))
    found = np.sort(np.exp(particles[:, axis]))
    axes.plot(np.exp(sides[axis]), shares, color="gray", label="exact")
    axes.step(found, np.arange(1, len(found) + 1) / len(found), color="#0b63a5", label="200 particles")
    axes.set(xlabel=name, xlim=(0.8 * found[0], 1.2 * found[-1]))
    away = np.abs(np.interp(found, np.exp(sides[axis]), shares) - (np.arange(len(found)) + 0.5) / len(found)).max()
    print(f"{name}: largest distance of the two {away:.3f}")

    assert away < 0.06
places[0].legend()
