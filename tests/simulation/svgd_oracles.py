"""Cases with an exact answer, computed by this process and those it was started with; a script for test_svgd.py.

    python svgd_oracles.py right       # prints JSON: how far each result is from what it should be
    python svgd_oracles.py wrong-sign  # the same with particles that attract each other

The processes share the devices; with several devices the first 1, 2, ... of a single process are also used alone.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any


def errors(mesh: Any, kind: str, exchange: str) -> dict[str, float]:
    """How far each result is from the exact one."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax

    from srunbook.svgd import SVGD

    options = {"mesh": mesh, "exchange": exchange}
    random = np.random.default_rng(0)
    start = random.normal(size=(13, 3)).astype(kind)
    key = jax.random.key(1)

    def normal(x: Any) -> Any:
        return -0.5 * jnp.sum(x**2)

    def nothing(x: Any) -> Any:
        return 0 * jnp.sum(x)

    def dense(particles: Any, scores: Any, h: float) -> Any:
        """The definition, in float64: one term for each pair."""
        x = particles.astype(float)
        between = x[:, None] - x[None]  # x_i - x_j
        kernel = np.exp(-np.sum(between**2, axis=2) / h)
        return (kernel @ scores + np.sum(kernel[:, :, None] * between, axis=1) * 2 / h) / len(x)

    found: dict[str, float] = {}

    # Two particles on N(0, 1) settle at +-a with a^2 = h/4 log(1 + 4/h).
    h = 1.3
    pair = SVGD(normal, bandwidth=h, optimizer=optax.sgd(1.0), **options)
    settled = pair.run(key, 2, 50, np.array([[0.3], [0.9]], kind)).particles
    a = math.sqrt(h / 4 * math.log(1 + 4 / h))
    found["two particles settle"] = float(np.max(np.abs(np.sort(settled[:, 0]) - [-a, a])))

    # The direction is that of the definition.
    direction = SVGD(normal, bandwidth=h, **options).direction(start)
    found["direction"] = float(np.max(np.abs(direction.phi - dense(start, -start.astype(float), h))))

    # Without scores the directions sum to zero, and two particles far from the others move apart: a negative speed.
    apart = start + np.array([8.0, 0, 0], kind) * (np.arange(13)[:, None] < 2)
    apart[1] = apart[0] + np.array([0.5, 0, 0], kind)
    repulsion = SVGD(nothing, bandwidth=h, **options).direction(apart).phi
    found["repulsion"] = float(np.max(np.abs(repulsion - dense(apart, 0 * start.astype(float), h))))
    found["repulsion sums to zero"] = float(np.max(np.abs(repulsion.sum(axis=0))))
    found["closing speed"] = float(repulsion[0, 0] - repulsion[1, 0])

    # A run with the default bandwidth, which is compared between layouts. It is NumPy's median, for the pairs are few.
    run = SVGD(normal, optimizer=optax.adam(0.1), **options).run(key, 13, 25, start)
    found["checksum"] = float(np.sum(run.particles * np.cos(np.arange(39).reshape(13, 3))))
    distances = np.linalg.norm(start[:, None].astype(float) - start[None], axis=2)[np.triu_indices(13, 1)]
    expected = np.median(distances) ** 2 / math.log(13)
    found["median"] = abs(float(run.bandwidths[0]) - expected)

    if exchange == "all_gather":
        exact = SVGD(normal, bandwidth="exact_median", **options).direction(start).bandwidth
        found["exact median"] = abs(exact - expected)

        # One particle alone climbs the density.
        climbing = SVGD(normal, optimizer=optax.sgd(0.1), **options).run(key, 1, 10, start[:1, :1]).particles
        found["one particle climbs"] = float(np.max(np.abs(climbing - start[:1, :1] * 0.9**10)))

        # With the kernel x.y + 1, mean and covariance of a Gaussian come out exactly (Liu and Wang 2018).
        covariance = np.array([[1.2, 0.3], [0.3, 0.8]])
        mean = np.array([0.5, -1.0])
        precision = jnp.asarray(np.linalg.inv(covariance), kind)

        def gaussian(x: Any) -> Any:
            away = x - jnp.asarray(mean, kind)
            return -0.5 * away @ precision @ away

        linear = SVGD(gaussian, kernel="linear", optimizer=optax.sgd(0.3), **options)
        moments = linear.run(key, 7, 120, random.normal(size=(7, 2)).astype(kind)).particles
        found["linear kernel, mean"] = float(np.max(np.abs(moments.mean(axis=0) - mean)))
        found["linear kernel, covariance"] = float(np.max(np.abs(np.cov(moments.T, bias=True) - covariance)))
    return found


def attract() -> None:
    """Turns the repulsion around, as the existing software has it."""
    from srunbook.svgd import _kernel

    right = _kernel.rbf_direction

    def wrong(centred: Any, scores: Any, h: Any, layout: Any) -> Any:
        return right(centred, scores, h, layout) - 2 * right(centred, 0 * scores, h, layout)

    _kernel.rbf_direction = wrong


def main() -> None:
    """Prints one line of JSON for each number of devices, precision and exchange."""
    from srunbook import initialize_distributed

    with initialize_distributed(timeout=90) as info:
        import jax
        import numpy as np
        from jax.sharding import Mesh

        if sys.argv[1] == "wrong-sign":
            attract()
        devices = jax.devices()
        counts = range(1, len(devices) + 1) if info.num_processes == 1 else [len(devices)]
        for kind in ("float32", "float64"):
            jax.config.update("jax_enable_x64", kind == "float64")
            for exchange in ("all_gather", "ring"):
                for count in counts:
                    found = errors(Mesh(np.array(devices[:count]), ("x",)), kind, exchange)
                    row = {"devices": count, "kind": kind, "exchange": exchange, "errors": found}
                    sys.stdout.write("oracle " + json.dumps(row) + "\n")
                    sys.stdout.flush()


if __name__ == "__main__":
    main()
