"""How SVGD with a costly score scales on nodes of equal CPU quota, beside what a model said before.

sudo python bench/svgd_scaling.py      # writes bench/results/svgd_scaling.json and svgd_scaling_fit.json

Needs root and a quiet machine, for it boots clusters with `srunbook cluster`. On each of them the constants of the
model are fitted first, from jobs that measure the parts of a step. Then come the predictions, and whether they are to
be trusted, and only then the steps that were predicted. A repeat is a job step of its own: new processes, a new start
of JAX.
"""

from __future__ import annotations

import json
import math
import os
import statistics
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from helpers.program import boot, options_of
from helpers.svgd_jobs import ROWS, SETTINGS, WIDTH, D, Setting, job, slowest, write
from measurements import Configuration

from srunbook import cluster
from srunbook.cluster import State

PERIOD = 0.1
"""Seconds of the period in which Linux deals out a quota: what is left of it then waits for the next one."""

BURST = 128 * 1024
"""Bytes that the limiter of a cluster's links lets pass at once, after a pause: then they cost less than was fitted."""

MOST_STALL = 0.05
"""Share of a predicted step that one such wait, or one such burst, may have."""

FITTED_SCORES, FITTED_KERNELS = (512, 1024), (3072, 6144)
"""Numbers of particles from which scores and kernel are fitted."""

MOST_CPUS = 0.95
"""Share of the machine's CPUs that the nodes may have together."""

STRONG, SHORT = 4096, 256
WEAK = 2560
"""Particles in all, and for each node."""


@dataclass(frozen=True)
class Constants:
    """Of T = m C_score + m n c_k + alpha log2 P + beta V, for n particles on P nodes and m = n / P.

    Args:
        score_s: C_score, seconds for the score of one particle.
        pair_s: c_k, seconds for one pair of particles.
        alpha_s: Seconds for the messages of a step, whatever their size.
        beta_s: Seconds for a byte that a node receives; V = (1 - 1/P) n 2 d w bytes.
    """

    score_s: float
    pair_s: float
    alpha_s: float
    beta_s: float

    def step(self, n: int, nodes: int) -> float:
        """Return the seconds of a step."""
        m = n / nodes
        pairs, messages = m * n * self.pair_s, self.alpha_s * math.log2(nodes)
        return m * self.score_s + pairs + messages + self.beta_s * received(n, nodes)


def received(n: int, nodes: int) -> float:
    """Return the bytes that a node receives in a step."""
    return (1 - 1 / nodes) * n * 2 * D * WIDTH


def doubts(setting: Setting, constants: Constants, nodes: int, n: int) -> str:
    """Say what speaks against a prediction, from what is known before the run, or "yes", trust it."""
    cpus, predicted = len(os.sched_getaffinity(0)), constants.step(n, nodes)
    found = []
    if nodes * setting.quota > MOST_CPUS * cpus:
        found.append(f"{nodes} x {setting.quota} CPUs of {cpus}")
    if n / nodes < min(FITTED_SCORES):
        found.append(f"{n // nodes} particles on a node, and {min(FITTED_SCORES)} are the fewest of the fit")
    stall = (1 - setting.quota) * PERIOD
    if nodes > 1 and stall > MOST_STALL * predicted:
        found.append(f"a node may stand still for {1e3 * stall:.0f} ms of a step of {1e3 * predicted:.0f} ms")
    at_once = constants.beta_s * min(received(n, nodes), BURST)
    if at_once > MOST_STALL * predicted:
        found.append(f"{1e3 * at_once:.0f} ms of bytes, of {1e3 * predicted:.0f} ms, may pass at once")
    return "no: " + " and ".join(found) if found else "yes"


def fit(state: State, rounds: int) -> tuple[Constants, dict[str, list[float]]]:
    """Return the constants, from jobs that measure the parts of a step; and the samples."""
    alone = ["--parts", f"--rows={ROWS}", "--score-particles", *map(str, FITTED_SCORES)]
    alone += ["--kernel-particles", *map(str, FITTED_KERNELS)]
    sizes = [65536, 262144, 524288]
    between = ["--parts", f"--rows={ROWS}", "--sizes", *map(str, sizes)]
    samples: dict[str, list[float]] = {}
    for _ in range(rounds):
        for found in (slowest(job(state, 1, *alone)), slowest(job(state, 2, *between))):
            for name, value in found.items():
                samples.setdefault(name, []).append(round(value, 7))
    medians = {name: statistics.median(values) for name, values in samples.items()}

    def through_origin(pairs: list[tuple[float, float]]) -> float:
        return sum(x * y for x, y in pairs) / sum(x * x for x, _ in pairs)

    received = [size / 2 for size in sizes]
    beta, _ = np.polyfit(received, [medians[f"gather {size}"] for size in sizes], 1)
    constants = Constants(
        score_s=through_origin([(n, medians[f"score {n}"]) for n in FITTED_SCORES]),
        pair_s=through_origin([(n * n, medians[f"kernel {n}"]) for n in FITTED_KERNELS]),
        alpha_s=medians["few"],
        beta_s=float(beta),
    )
    return constants, samples


def fitted(setting: Setting, constants: Constants, samples: dict[str, list[float]]) -> Configuration:
    """Return what was fitted on a cluster, also in units for people."""
    parameters = {"link": setting.link, "cluster_nodes": setting.nodes, "quota": setting.quota}
    people = {
        "score_us": [round(1e6 * constants.score_s, 3)],
        "pair_us": [round(1e6 * constants.pair_s, 7)],
        "messages_ms": [round(1e3 * constants.alpha_s, 4)],
        "link_MBps": [round(1e-6 / constants.beta_s, 4)],
    }
    exact = {name: float(f"{value:.6g}") for name, value in asdict(constants).items()}
    raw = {f"{name}_s": values for name, values in samples.items()}
    return Configuration(f"{setting.link}, {setting.quota} CPUs", {**parameters, **exact}, {**people, **raw})


def measure(setting: Setting, slurm: str, fits: int) -> tuple[Configuration, list[Configuration]]:
    """Fit, predict and measure on one cluster."""
    name = f"bench-{setting.link}"
    wanted = cluster.Specification(
        name=name, slurm=slurm, nodes=setting.nodes, cpu_quota=setting.quota, link=setting.link
    )
    state = boot(wanted)
    try:
        constants, samples = fit(state, fits)
        made = fitted(setting, constants, samples)
        series = made.name
        print(series, json.dumps(made.parameters), flush=True)
        found = []
        cases = [
            (kind, nodes, n * nodes if kind == "weak" else n)
            for nodes in setting.counts
            for kind, n in (("strong", STRONG), ("weak", WEAK), ("short", SHORT))
        ]
        predicted = {case: constants.step(case[2], case[1]) for case in cases}
        trusted = {case: doubts(setting, constants, case[1], case[2]) for case in cases}
        taken: dict[tuple[str, int, int], list[float]] = {case: [] for case in cases}
        for repeat in range(setting.repeats):
            for nodes in setting.counts:
                here = [case for case in cases if case[1] == nodes]
                ranks = job(state, nodes, f"--rows={ROWS}", "--particles", *(str(case[2]) for case in here))
                for case in here:
                    taken[case].append(round(slowest(ranks)[str(case[2])], 6))
            print(f"{series}: repeat {repeat + 1} of {setting.repeats}", flush=True)
        for case in cases:
            kind, nodes, n = case
            seconds = taken[case]
            off = [round(100 * (predicted[case] / one - 1), 2) for one in seconds]
            parameters: dict[str, Any] = {
                "kind": kind,
                "link": setting.link,
                "cluster_nodes": setting.nodes,
                "quota": setting.quota,
                "nodes": nodes,
                "n": n,
                "trusted": trusted[case],
            }
            quantities = {"step_s": seconds, "predicted_s": [round(predicted[case], 6)], "off_percent": off}
            found.append(Configuration(f"{kind}, {series}, {nodes} nodes", parameters, quantities))
            print(
                f"{found[-1].name:36} step {statistics.median(seconds):.4f} s, predicted {predicted[case]:.4f} s, "
                f"off {statistics.median(off):+.1f}%, trusted: {trusted[case]}",
                flush=True,
            )
        return made, found
    finally:
        cluster.down(name)


def main() -> None:
    """Measure all settings, and write the files."""
    options = options_of(__doc__, "svgd_scaling", repeats=0, fits=2, slurm="22.05")
    load = round(os.getloadavg()[0], 2)
    fits, configurations = [], []
    for chosen in SETTINGS:
        made, found = measure(replace(chosen, repeats=options.repeats or chosen.repeats), options.slurm, options.fits)
        fits.append(made)
        configurations += found
    for path, rows in (
        (options.output, configurations),
        (options.output.with_stem(f"{options.output.stem}_fit"), fits),
    ):
        write(path, rows, options.slurm, load_before=load, cpu_quota="of each node")


if __name__ == "__main__":
    main()
