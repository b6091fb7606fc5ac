"""One process of bench/svgd_scaling.py: times steps of SVGD and prints its samples as one line of JSON.

Started by srun on a cluster whose nodes have equal shares of a CPU and links of equal rate. A process has one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from typing import Any

D = 8
"""Dimension of the particles: the rates of genealogies of 9 samples."""


def median_of(loop: Any, rounds: int) -> float:
    """Return the median time of a step, of some calls of a loop."""
    return statistics.median(loop() for _ in range(rounds))


def steps(options: argparse.Namespace) -> dict[str, float]:
    """Time whole steps, with so many particles each time."""
    from helpers.svgd_loop import Loop, coalescent, normal

    from srunbook.svgd import SVGD

    found = {}
    for particles in options.particles:
        sampler, count = SVGD(**coalescent(D, options.rows)), max(options.steps, 2048 // particles)
        found[str(particles)] = median_of(Loop(sampler, normal(particles, D, 0.1), count), options.rounds)
    return found


def parts(options: argparse.Namespace) -> dict[str, float]:
    """Time the parts of a step, each by itself: scores, kernel, messages that hold nothing, and messages."""
    import jax
    import jax.numpy as jnp
    from helpers.svgd_loop import Loop, coalescent, normal, timed
    from jax import lax
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as Spec

    from srunbook.svgd import SVGD

    def cheap(x: Any) -> Any:
        return -0.5 * jnp.sum(x**2)

    found = {}
    if jax.process_count() == 1:
        scores = SVGD(**coalescent(D, options.rows), kernel="linear")
        for n in options.score_particles:
            found[f"score {n}"] = median_of(Loop(scores, normal(n, D, 0.1), options.steps), options.rounds)
        for n in options.kernel_particles:
            found[f"kernel {n}"] = median_of(Loop(SVGD(cheap), normal(n, D), options.steps), options.rounds)
        return found
    few = Loop(SVGD(cheap), normal(8 * jax.process_count(), D), 100)
    found["few"] = median_of(few, options.rounds)
    mesh = SVGD(cheap).mesh
    gather = jax.jit(
        jax.shard_map(
            lambda rows: jnp.sum(lax.all_gather(rows, "particles", tiled=True))[None],
            mesh=mesh,
            in_specs=Spec("particles"),
            out_specs=Spec("particles"),
            check_vma=False,
        )
    )
    for size in options.sizes:
        whole = normal(size // 4, 1)[:, 0]
        array = jax.make_array_from_callback(
            whole.shape, NamedSharding(mesh, Spec("particles")), lambda index, whole=whole: whole[index]
        )
        call = lambda array=array: gather(array)  # noqa: E731
        timed(call, 0.0)
        count = max(3, int(2e6 / size))

        def several(call: Any = call, count: int = count) -> float:
            start = time.perf_counter()
            for _ in range(count):
                jax.block_until_ready(call())
            return (time.perf_counter() - start) / count

        found[f"gather {size}"] = median_of(several, options.rounds)
    return found


def main() -> None:
    """Start JAX, measures, prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--parts", action="store_true", help="the parts of a step in place of whole steps")
    parser.add_argument("--rows", type=int, required=True, help="genealogies")
    parser.add_argument("--steps", type=int, default=2, help="of each call, at least")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--particles", type=int, nargs="*", default=[])
    parser.add_argument("--score-particles", type=int, nargs="*", default=[])
    parser.add_argument("--kernel-particles", type=int, nargs="*", default=[])
    parser.add_argument("--sizes", type=int, nargs="*", default=[], help="bytes of what is gathered")
    options = parser.parse_args()
    usable = sorted(os.sched_getaffinity(0))
    rank = int(os.environ["SLURM_PROCID"])
    os.sched_setaffinity(0, {usable[rank % len(usable)]})  # XLA makes a thread for each CPU it sees

    from srunbook import initialize_distributed

    with initialize_distributed(cpu_devices=1) as info:
        found = parts(options) if options.parts else steps(options)
        content = {"rank": info.process_id, "cpus": usable, "samples": found}
        sys.stdout.write("sample " + json.dumps(content) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
