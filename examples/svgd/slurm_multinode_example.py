"""Distributed SVGD with what a long job needs: options, progress, checkpoints, stop signals, rank lines.

    python slurm_multinode_example.py --steps 100
    srunbook simulate --nodes 2 -- python slurm_multinode_example.py
    sbatch slurm_multinode.sbatch

Two unknowns of a population: the rate at which two lineages join, and the rate of mutations. Given are,
for a number of loci, the height of a genealogy of 5 samples and how many of its sites differ.

Exit status: 0 finished, 2 an option is wrong, 75 stopped by a signal and saved: run it again to continue.
"""

from __future__ import annotations

import argparse
import hashlib
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

from srunbook import initialize_distributed, phase_type
from srunbook.signals import StopSignal
from srunbook.svgd import SVGD, saved_steps

SAMPLES = 5  # at each locus
RATE, MUTATION = 2.0, 3.0  # the truth behind the synthetic observations
JOB = os.environ.get("SLURM_JOB_ID")
OWN_FOLDER = Path("checkpoints") / JOB if JOB else None


# [options]
def parse() -> argparse.Namespace:
    """Read the options before JAX starts: a misspelt one fails at once."""
    parser = argparse.ArgumentParser(description="Distributed SVGD for a coalescent model.", allow_abbrev=False)
    parser.add_argument("--particles", type=int, default=128, help="any number; it need not fit the devices")
    parser.add_argument("--steps", type=int, default=100, help="in all, also those before a restart")
    parser.add_argument("--every", type=int, default=20, help="steps between reports, checkpoints and looks at signals")
    parser.add_argument("--loci", type=int, default=20, help="how much is observed: the cost of a particle's score")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--checkpoint-dir",
        type=Path,
        default=OWN_FOLDER,
        help="where all nodes see it; by default checkpoints/JOB in a job, and none outside of one",
    )
    parser.add_argument("--timing-log", type=Path, help="a file: how long each process takes for its scores")
    parser.add_argument("--output", type=Path, help="a .npz file for the particles")
    options = parser.parse_args()
    for name in ("particles", "steps", "every", "loci"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} {getattr(options, name)}: give 1 or more, as in --{name} 100")
    if options.output:
        try:  # now, not after the last step
            options.output.parent.mkdir(parents=True, exist_ok=True)
            options.output.with_suffix(".tmp.npz").open("ab").close()
        except OSError as error:
            parser.error(f"--output {options.output}: {error}")
    return options


# [/options]


def observe(loci: int) -> tuple[np.ndarray, np.ndarray]:
    """Make heights of genealogies, and numbers of differing sites of others: the same on every process."""
    random = np.random.default_rng(2026)
    lineages = np.arange(SAMPLES, 1, -1)
    waits = random.exponential(2 / (RATE * lineages * (lineages - 1)), (2, loci, SAMPLES - 1))
    counts = random.poisson(MUTATION * waits[1] @ lineages)
    return waits[0].sum(axis=1).astype(np.float32), counts + 1  # counted from 1


# [model]
def log_prior(x: jax.Array) -> jax.Array:
    """Return the log density of a wide normal prior, of the logarithms of both rates."""
    return -jnp.sum(x**2) / 8


def log_likelihood(x: jax.Array, data: tuple[jax.Array, jax.Array]) -> jax.Array:
    """Return the log likelihood of the observations at logarithms of the rates, shape (2,)."""
    heights, counts = data
    rate, mutation = jnp.exp(x)
    genealogies = phase_type.coalescent_height(SAMPLES, rate)
    mutations = phase_type.segregating_sites(SAMPLES, 2 * mutation / rate)
    return genealogies.log_prob(heights).sum() + mutations.log_prob(counts).sum()


# [/model]


def main() -> None:
    options = parse()
    # [run]
    dist_info = initialize_distributed()
    rank = f"rank {dist_info.process_id}/{dist_info.num_processes}"
    host, job = os.environ.get("SLURMD_NODENAME", "localhost"), f" job={JOB}" if JOB else ""
    devices = "device=cpu backend=gloo" if jax.default_backend() == "cpu" else "device=cuda backend=nccl"
    print(f"{rank} start host={host} {devices} framework=jax-{jax.__version__}{job}", flush=True)
    if dist_info.is_coordinator:
        print(f"{options.particles} particles on {dist_info.global_device_count} devices", flush=True)
        print_first_step(options)

    sampler = SVGD(
        log_prior,
        dim=2,
        optimizer=optax.adam(0.1),
        log_likelihood=log_likelihood,
        data=observe(options.loci),
    )
    with StopSignal() as stop:
        result = sampler.run(
            jax.random.key(options.seed),
            options.particles,
            options.steps,
            progress=True,  # a line of process 0 at every report
            every=options.every,
            checkpoint=options.checkpoint_dir,  # it continues what it finds there
            stop=stop,  # SIGTERM, SIGUSR1, SIGUSR2: all processes save the same step
            timing_log=options.timing_log,
        )
        params = hashlib.sha256(result.particles.tobytes()).hexdigest()[:12]
        print(f"{rank} end steps={result.steps} params={params}", flush=True)
        if dist_info.is_coordinator:
            report(result, options)
        if result.stopped:
            stop.leave()  # status 75; at SIGUSR1 it asks Slurm to run the job again
    # [/run]


def print_first_step(options: argparse.Namespace) -> None:
    """Print the step that the run starts from."""
    folder = options.checkpoint_dir
    saved = saved_steps(folder) if folder else []
    if saved:
        print(f"continues after step {saved[-1]}, from {folder}", flush=True)
    elif folder != OWN_FOLDER:  # somebody named it
        print(f"no checkpoint in {folder}, starts at step 0", flush=True)


def report(result, options: argparse.Namespace) -> None:
    """Print the result, and write the particles where --output names a file."""
    if result.first_step:
        print(f"continued after step {result.first_step}", flush=True)
    if result.stopped:
        folder = options.checkpoint_dir
        saved = f"which is saved; to continue: --checkpoint-dir {folder} and the same options"
        what = saved if folder else "not saved: it had no --checkpoint-dir"
        print(f"stopped after step {result.steps}, {what}", flush=True)
    for name, truth, logs in zip(("rate", "mutation"), (RATE, MUTATION), result.particles.T, strict=True):
        print(f"{name} {np.exp(logs).mean():.3f} +- {np.exp(logs).std():.3f} (it was {truth})", flush=True)
    for timing in result.slow_processes:
        print(f"slow: process {timing.process_id} on {timing.host}", flush=True)
    if options.output and not result.stopped:
        beside = options.output.with_suffix(".tmp.npz")
        np.savez(beside, particles=result.particles, steps=result.steps)
        beside.replace(options.output.with_suffix(".npz"))


if __name__ == "__main__":
    main()
