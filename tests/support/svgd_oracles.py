"""Cases with an exact answer, computed by this process and those it was started with; a script for test_svgd.py.

    python svgd_oracles.py right 4       # on 4 devices; prints JSON: how far each result is from what it should be
    python svgd_oracles.py right 1 2 3   # of a single process, on the first 1, 2 and 3 of its devices
    python svgd_oracles.py wrong-sign 1  # the first of them, with particles that attract each other

Several processes share all their devices.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any

LIMITS = {"float32": 2e-5, "float64": 1e-11}
"""How far results may be from the exact ones, in units of the particles."""

SHARE = 0.05
"""By how much of it a mean, a standard deviation or a variance may differ from what it should be."""


def too_far(row: dict[str, Any]) -> list[str]:
    """Name the results of a row that are too far from the exact ones, or from what is known of them."""
    limit = LIMITS[row["kind"]]
    errors = {name: error for name, error in row["errors"].items() if name not in ("checksum", "closing speed")}
    wrong = [name for name, error in errors.items() if not error < limit]
    wrong += [name for name, share in row.get("shares", {}).items() if not share < SHARE]
    return wrong + ["closing speed"] * (not row["errors"]["closing speed"] < -0.01)


def errors(mesh: Any, kind: str) -> dict[str, float]:
    """Compute how far each result is from the exact one."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax

    from srunbook.svgd import SVGD

    options = {"mesh": mesh}
    random = np.random.default_rng(0)
    start = random.normal(size=(13, 3)).astype(kind)
    key = jax.random.key(1)

    def normal(x: Any) -> Any:
        return -0.5 * jnp.sum(x**2)

    def nothing(x: Any) -> Any:
        return 0 * jnp.sum(x)

    def dense(particles: Any, scores: Any, h: float) -> Any:
        """Compute the definition, in float64: one term for each pair."""
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

    # Each particle lies on one device.
    held = sorted(number for holding in pair.placement(13) for number in holding.particles)
    found["misplaced particles"] = float(held != list(range(13)))

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


def distributions(mesh: Any, kind: str) -> dict[str, float]:
    """Compute by which share particles at rest differ from what is known of them."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax

    from srunbook.svgd import SVGD

    random = np.random.default_rng(0)
    options = {"mesh": mesh, "optimizer": optax.adam(optax.cosine_decay_schedule(0.2, 150))}
    key = jax.random.key(1)

    # 100 particles in 10 dimensions get 0.430 of the variance of a normal distribution.
    normal = SVGD(lambda x: -0.5 * jnp.sum(x**2), **options)
    variance = normal.run(key, 101, 150, random.normal(size=(101, 10)).astype(kind)).particles.var(axis=0).mean()

    # The rate of Erlang times with a gamma prior has a gamma posterior. Their likelihood has a closed form, too: that
    # of srunbook.phase_type takes long to compile, and it knows nothing of layouts.
    shape, a, b = 3, 2.0, 1.0
    times = random.gamma(shape, 0.5, 20).astype(kind)
    posterior = a + len(times) * shape, b + float(times.sum())

    def log_prior(x: Any) -> Any:  # of the logarithm of the rate, hence a and not a - 1
        return a * x[0] - b * jnp.exp(x[0])

    def log_likelihood(x: Any, times: Any) -> Any:
        return len(times) * shape * x[0] - jnp.exp(x[0]) * times.sum()

    erlang = SVGD(log_prior, data=times, log_likelihood=log_likelihood, **options)
    rates = np.exp(erlang.run(key, 199, 150, 0.5 * random.normal(size=(199, 1)).astype(kind)).particles)
    return {
        "variance": abs(float(variance) / 0.430 - 1),
        "posterior mean": abs(float(rates.mean()) / (posterior[0] / posterior[1]) - 1),
        "posterior standard deviation": abs(float(rates.std()) / (posterior[0] ** 0.5 / posterior[1]) - 1),
    }


def attract() -> None:
    """Turn the repulsion around, as the existing software has it."""
    from srunbook.svgd import kernel

    right = kernel.rbf_direction

    def wrong(centred: Any, scores: Any, h: Any, layout: Any, everyone: Any) -> Any:
        return right(centred, scores, h, layout, everyone) - 2 * right(centred, 0 * scores, h, layout, everyone)

    kernel.rbf_direction = wrong


def main() -> None:
    """Print one line of JSON for each number of devices and precision."""
    from srunbook import initialize_distributed

    with initialize_distributed(timeout=600) as info:
        import jax
        import numpy as np
        from jax.sharding import Mesh

        if sys.argv[1] == "wrong-sign":
            attract()
        devices = jax.devices()
        counts = [int(count) for count in sys.argv[2:]]
        if info.num_processes > 1 and counts != [len(devices)]:
            raise SystemExit(f"{counts} of {len(devices)} devices: several processes share all of them")
        for kind in LIMITS if sys.argv[1] == "right" else ("float32",):
            jax.config.update("jax_enable_x64", kind == "float64")
            for count in counts:
                mesh = Mesh(np.array(devices[:count]), ("x",))
                row = {"devices": count, "kind": kind, "errors": errors(mesh, kind)}
                if sys.argv[1] == "right":
                    row["shares"] = distributions(mesh, kind)
                sys.stdout.write("oracle " + json.dumps(row) + "\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
