"""How long a step of SVGD takes, beside the least time that its exponentials and products take on this machine.

python bench/svgd_speed.py             # n = 256, 1024, 4096 and d = 2, 8, 64; writes bench/results/svgd_speed.json
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_NUM_CPU_DEVICES", "1")  # one device that uses all cores

import jax
import jax.numpy as jnp
import numpy as np
import optax

import srunbook
from srunbook.formats import Configuration, Measurement, write_measurement
from srunbook.svgd import SVGD

RESULT = Path(__file__).parent / "results" / "svgd_speed.json"
BLOCK = 1 << 20
"""Elements of the kernel matrix in each of the floor's blocks: 4 MiB."""


def standard_normal(x: Any) -> Any:
    """The target: its score costs next to nothing, so the step is the kernel."""
    return -0.5 * jnp.sum(x**2)


def timed(call: Callable[[], Any], seconds: float) -> float:
    """Milliseconds of one call, from as many as fit into some time, but one at least."""
    count, start = 0, time.perf_counter()
    while count == 0 or time.perf_counter() - start < seconds:
        jax.block_until_ready(call())
        count += 1
    return 1e3 * (time.perf_counter() - start) / count


def peer(name: str, n: int, d: int) -> Callable[[], Any] | None:
    """One step of another library with its own default bandwidth, compiled; None where it is not installed."""
    start = jax.random.normal(jax.random.key(0), (n, d))
    if name != "blackjax":
        return None
    try:
        import blackjax
    except ImportError:
        return None
    algorithm = blackjax.svgd(jax.grad(standard_normal), optax.adam(0.05))
    step = jax.jit(algorithm.step)
    state = algorithm.init(start)
    jax.block_until_ready(step(state))
    return lambda: step(state)


class Case:
    """One number of particles and dimensions.

    Args:
        n: Number of particles.
        d: Dimension.
        seconds: How long each sample takes.
    """

    def __init__(self, n: int, d: int, seconds: float) -> None:
        self.n, self.d, self.seconds = n, d, seconds
        self.steps = max(1, min(500, int(2e8 / (n * n * (d + 10)))))
        self.start = np.asarray(jax.random.normal(jax.random.key(0), (n, d)))
        self.samplers = {
            name: SVGD(standard_normal, bandwidth=bandwidth, optimizer=optax.adam(0.05))
            for name, bandwidth in (("step_ms", "median"), ("step_fixed_ms", float(d)))
        }
        rows = max(1, min(n, BLOCK // n))
        self.blocks = -(-n // rows)
        left, right, summed = (
            jax.random.normal(jax.random.key(key), shape)
            for key, shape in enumerate([(rows, d + 2), (d + 2, n), (d + 1, rows)])
        )
        kernel = -jnp.abs(left @ right)
        exponential, first, second = (jax.jit(call) for call in (jnp.exp, jnp.matmul, jnp.matmul))
        self.parts: dict[str, Callable[[], Any]] = {
            "exp_ms": lambda: exponential(kernel),
            "product_in_ms": lambda: first(left, right),
            "product_out_ms": lambda: second(summed, kernel),
        }
        self.blackjax = peer("blackjax", n, d)

    def program(self, name: str) -> float:
        """Milliseconds of a step within the compiled loop."""
        sampler = self.samplers[name]
        layout = sampler._layout(self.n)
        pairs = sampler._pairs(jax.random.key(1), self.n)
        program = sampler._program(layout, self.steps)

        def run() -> Any:
            x = sampler._spread(self.start, layout)
            return program((x, sampler.optimizer.init(x)), np.int32(0), None, pairs, jax.random.key(2))

        return timed(run, self.seconds) / self.steps

    def sample(self) -> dict[str, float]:
        """One sample of everything, one right after the other."""
        found = {name: self.program(name) for name in self.samplers}
        for name, call in self.parts.items():
            found[name] = self.blocks * timed(call, self.seconds / 4)
        found["floor_ms"] = sum(found[name] for name in self.parts)
        found["times_floor"] = found["step_ms"] / found["floor_ms"]
        if self.blackjax:
            found["blackjax_ms"] = timed(self.blackjax, self.seconds)
            found["times_faster_than_blackjax"] = found["blackjax_ms"] / found["step_ms"]
        return found


def main() -> None:
    """Takes the samples of all cases in turn."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--particles", type=int, nargs="+", default=[256, 1024, 4096])
    parser.add_argument("--dimensions", type=int, nargs="+", default=[2, 8, 64])
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each sample (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()

    cases = [Case(n, d, options.seconds) for n in options.particles for d in options.dimensions]
    samples: list[dict[str, list[float]]] = [{} for _ in cases]
    for repeat in range(options.repeats + 1):
        for case, taken in zip(cases, samples, strict=True):
            for quantity, value in case.sample().items():
                if repeat:  # the first round compiles
                    taken.setdefault(quantity, []).append(round(value, 4))
    configurations = [
        Configuration(f"n={case.n}, d={case.d}", {"n": case.n, "d": case.d, "steps": case.steps}, taken)
        for case, taken in zip(cases, samples, strict=True)
    ]
    for configuration in configurations:
        figures = (f"{quantity} {configuration.median(quantity):.4g}" for quantity in configuration.samples)
        print(f"{configuration.name:14}  {'  '.join(figures)}")
    measurement = Measurement.taken_now(
        "python bench/svgd_speed.py",
        configurations,
        versions={"srunbook": srunbook.__version__, "jax": jax.__version__},
        parameters={
            "repeats": options.repeats,
            "warm_up": 1,
            "order": "in turn",
            "type": "float32",
            "devices": jax.device_count(),
            "floor": "exp of n x n numbers and the products (n, d+2) (d+2, n) and (d+1, n) (n, n), in blocks of 4 MiB",
            "load_before": round(os.getloadavg()[0], 2),
        },
    )
    write_measurement(options.output, measurement)


if __name__ == "__main__":
    main()
