"""One step of SVGD by other packages, in a process of its own with a limit of memory; started by bench/svgd_speed.py.

It reads one line of JSON for each request and answers with one: `{"package": "blackjax", "n": 256, "d": 2}` compiles a
step, `{"seconds": 0.5}` times it.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import resource
import sys
from collections.abc import Callable
from typing import Any

os.environ.setdefault("JAX_NUM_CPU_DEVICES", "1")

MEMORY = 16 * 2**30
"""Bytes that a package may have: its data segment, with all that it maps for itself."""

ANSWER = "answer "
"""What a line with an answer begins with; packages print, too."""


def blackjax_step(n: int, d: int) -> tuple[Callable[..., Any], Any]:
    """Prepare `blackjax.svgd` with its default kernel and its median heuristic."""
    import blackjax
    import jax
    import jax.numpy as jnp
    import optax
    from helpers.svgd_loop import normal

    algorithm = blackjax.svgd(jax.grad(lambda x: -0.5 * jnp.sum(x**2)), optax.adam(0.05))
    return algorithm.step, algorithm.init(jnp.asarray(normal(n, d)))


def numpyro_step(n: int, d: int) -> tuple[Callable[..., Any], Any]:
    """Prepare `numpyro.contrib.einstein.SVGD` with its RBF kernel."""
    import jax
    import numpyro
    import numpyro.distributions as dist
    from numpyro.contrib.einstein import SVGD, RBFKernel

    def model() -> None:
        numpyro.sample("x", dist.Normal(0, 1).expand([d]).to_event(1))

    stein = SVGD(model, numpyro.optim.Adam(0.05), RBFKernel(), num_stein_particles=n)
    return (lambda state: stein.update(state)[0]), stein.init(jax.random.PRNGKey(0))


def phasic_step(n: int, d: int) -> tuple[Callable[..., Any], Any]:
    """Prepare `phasic.svgd.svgd_step` with its kernel and its gradient compiled; the step itself is Python."""
    import jax
    import jax.numpy as jnp
    from helpers.svgd_loop import normal
    from phasic.svgd import SVGDKernel, svgd_step

    def log_prob(x: Any) -> Any:
        return -0.5 * jnp.sum(x**2)

    kernel, gradient = SVGDKernel(), jax.jit(jax.grad(log_prob))
    return (lambda x: svgd_step(x, log_prob, kernel, 0.05, compiled_grad=gradient)), jnp.asarray(normal(n, d))


STEPS = {"blackjax": blackjax_step, "numpyro": numpyro_step, "phasic": phasic_step}


def prepare(package: str, n: int, d: int) -> tuple[Callable[[], Any] | None, dict[str, Any]]:
    """Compile a step; where the compiler says that it needs too much memory, there is none to run."""
    import jax

    step, state = STEPS[package](n, d)
    if package == "phasic":  # it gives back the gradient of the kernel, which has n x n x d elements
        compiled, needed = step, 4 * n * n * (d + 1)
    else:
        compiled = jax.jit(step).lower(state).compile()
        plan = compiled.memory_analysis()
        needed = plan.temp_size_in_bytes + plan.argument_size_in_bytes + plan.output_size_in_bytes
    answer = {"needed_GiB": round(needed / 2**30, 3), "version": importlib.metadata.version(package)}
    return (lambda: compiled(state)) if needed <= MEMORY else None, answer


def main() -> None:
    """Answer until there are no more requests."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    call: Callable[[], Any] | None = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "package" in request:
                call, answer = prepare(**request)
            else:
                from helpers.svgd_loop import timed

                assert call is not None
                answer = {"ms": 1e3 * timed(call, request["seconds"])}
        except Exception as error:  # it is the answer
            answer = {"error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:300]}
        sys.stdout.write(ANSWER + json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
