"""my_svgd.py without srunbook's machinery: all that a program has to do by hand to run SVGD on several nodes.

    python legacy_multinode.py
    srun python legacy_multinode.py

Same model, same start, same answer. No checkpoints, no progress, no end of all when one process dies.
"""

import math
import os
import subprocess
import sys

# 1. Who am I? Slurm's variables, all of them or none.
NEEDED = ("SLURM_JOB_ID", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_NODELIST")
found = [name for name in NEEDED if os.environ.get(name)]
if found and len(found) < len(NEEDED):
    missing = ", ".join(name for name in NEEDED if name not in found)
    sys.exit(f"{missing} not set: start me with srun python legacy_multinode.py")
process_id = int(os.environ["SLURM_PROCID"]) if found else 0
num_processes = int(os.environ["SLURM_NTASKS"]) if found else 1

# 2. Where is process 0? On the first node of the step (but not with --distribution=arbitrary).
# Its port is one that no other job there uses.
coordinator = os.environ.get("SLURM_COORDINATOR_ADDRESS")
if num_processes > 1 and coordinator is None:
    command = ["scontrol", "show", "hostnames", os.environ["SLURM_STEP_NODELIST"]]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"scontrol does not tell the nodes: {error}")
    coordinator = listed.split()[0]
if num_processes > 1 and ":" not in coordinator:
    port = os.environ.get("JAX_COORDINATOR_PORT") or 61440 + int(os.environ["SLURM_JOB_ID"]) % 4096
    coordinator = f"{coordinator}:{port}"

# 3. How many devices? Before JAX is imported.
if "JAX_NUM_CPU_DEVICES" not in os.environ and "host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
    os.environ["JAX_NUM_CPU_DEVICES"] = os.environ.get("SLURM_CPUS_PER_TASK") or str(os.cpu_count() or 1)

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402
from jax.sharding import Mesh, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

from srunbook import phase_type  # noqa: E402 - the model is the same in both programs

assert jax.__version_info__ >= (0, 8, 1), f"needs JAX 0.8.1 or newer, found {jax.__version__}"

# 4. Meet the others.
if num_processes > 1:
    jax.distributed.initialize(
        coordinator_address=coordinator,
        num_processes=num_processes,
        process_id=process_id,
        initialization_timeout=120,
    )
print(f"Process {process_id}/{num_processes}")
print(f"Local devices: {jax.local_device_count()}")
print(f"Global devices: {jax.device_count()}")

PARTICLES, STEPS, DIM, RATE = 100, 200, 1, 0.05
heights = np.array([1.16, 0.51, 0.35, 0.3, 1.52, 1.62, 0.4, 1.8, 0.85, 2.13, 0.77, 0.94, 0.42, 0.55, 0.2, 0.4])


def log_density(x):
    return phase_type.coalescent_height(5, rate=jnp.exp(x[0])).log_prob(heights).sum() - x[0] ** 2 / 8


# 5. Spread the particles: as many rows on each device, and rows that only fill up take no part.
mesh = Mesh(np.array(jax.devices()), ("particles",))
rows = -(-PARTICLES // mesh.size)
padded = rows * mesh.size
split, whole = NamedSharding(mesh, P("particles")), NamedSharding(mesh, P())
start = np.asarray(jax.random.normal(jax.random.fold_in(jax.random.key(0), 0), (PARTICLES, DIM)))
start = np.concatenate([start, np.broadcast_to(start[:1], (padded - PARTICLES, DIM))])
particles = jax.make_array_from_callback(start.shape, split, lambda index: start[index])


# 6. The direction of each particle: attraction by the scores, repulsion by the kernel.
def direction(x):
    number = lax.axis_index("particles") * rows + jnp.arange(rows)
    mine = (number < PARTICLES)[:, None]
    scores = jnp.where(mine, jax.vmap(jax.grad(log_density))(x), 0)
    everyone = lax.all_gather(x, "particles", tiled=True)[:PARTICLES]
    every_score = lax.all_gather(scores, "particles", tiled=True)[:PARTICLES]
    distances = jnp.sqrt(jnp.sum((everyone[:, None] - everyone[None]) ** 2, axis=2))
    first, second = jnp.triu_indices(PARTICLES, 1)
    h = lax.stop_gradient(jnp.median(distances[first, second])) ** 2 / math.log(PARTICLES)
    away = x[:, None] - everyone[None]
    kernel = jnp.exp(-jnp.sum(away**2, axis=2) / h)
    phi = (kernel @ every_score + 2 / h * jnp.sum(kernel[:, :, None] * away, axis=1)) / PARTICLES
    return jnp.where(mine, phi, 0)


spread_direction = jax.shard_map(
    direction, mesh=mesh, in_specs=P("particles"), out_specs=P("particles"), check_vma=False
)


# 7. Adam, and the loop.
@jax.jit(out_shardings=whole)
def run(x):
    def step(carry, number):
        x, mean, square = carry
        phi = spread_direction(x)
        mean, square = 0.9 * mean + 0.1 * phi, 0.999 * square + 0.001 * phi**2
        scaled = (mean / (1 - 0.9**number)) / (jnp.sqrt(square / (1 - 0.999**number)) + 1e-8)
        return (x + RATE * scaled, mean, square), None

    (x, _, _), _ = lax.scan(step, (x, jnp.zeros_like(x), jnp.zeros_like(x)), jnp.arange(1.0, STEPS + 1))
    return x


rates = np.exp(np.asarray(run(particles).addressable_data(0))[:PARTICLES, 0])
if process_id == 0:
    print(f"rate {rates.mean():.3f} +- {rates.std():.3f}")
if num_processes > 1:
    jax.distributed.shutdown()
