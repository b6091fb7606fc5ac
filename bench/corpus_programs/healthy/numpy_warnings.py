"""Compute what NumPy warns of."""

import numpy as np

values = np.array([0.0, 1.0, 1000.0])
print("log", np.log(values), "exp", np.exp(values), "ratio", values / values[0], flush=True)
print("mean of nothing", np.mean(np.array([])), np.float32(1e30) * np.float32(1e30))
