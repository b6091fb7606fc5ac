"""How DDP with gloo scales on nodes of equal CPU quota, with links of 100 and 300 Mbit/s, and whether a model says why.

sudo python bench/gloo_scaling.py      # writes bench/results/gloo_scaling.json and bench/results/gloo_overlap.json

Needs root and a quiet machine, for it boots clusters with `srunbook cluster`. A repeat is a job step of its own: new
processes, a new rendezvous. Configurations are measured in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from pathlib import Path
from typing import Any

import torch
from helpers.network import link_bound, predict_step
from helpers.program import boot, printed_samples, write
from measurements import Configuration

from srunbook import cluster
from srunbook.cluster import State

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
LINKS = {"100mbit": 100e6, "300mbit": 300e6}
LARGEST = {"100mbit": 4, "300mbit": 2}  # beyond that the processors limit the all-reduce, not the link
QUOTA = 0.45  # of a CPU, on each of four nodes of a machine with two
PAIR_QUOTA = 0.9  # on each of two nodes
STRONG_BATCH, WEAK_BATCH, HIDDEN = 512, 256, 256
WIDE_BATCH, WIDE_HIDDEN = 3072, 1024
SHARED = {"steps": 5, "warm_up": 2, "order": "in turn", "across_ranks": "maximum"}


def boot_link(link: str, nodes: int, quota: float, slurm: str) -> State:
    """Boot a cluster whose nodes have equal shares of a CPU and equal links."""
    name = f"bench-{link}"
    wanted = cluster.Specification(name=name, slurm=slurm, nodes=nodes, cpu_quota=quota, link=link)
    return boot(wanted)


def measure(state: State, nodes: int, *options: str) -> list[dict[str, Any]]:
    """Run one job; return what each rank measured."""
    port = 25000 + int.from_bytes(os.urandom(2), "big") % 7000
    programs = "/opt/srunbook/examples/gloo_ddp/full"
    environ = f"MASTER_ADDR=node1,MASTER_PORT={port},OMP_NUM_THREADS=1,PYTHONPATH={programs}"
    step = ["srun", f"--nodes={nodes}", "-w", ",".join(f"node{n}" for n in range(1, nodes + 1)), "--ntasks-per-node=1"]
    program = ["/home/alice/torch-env/bin/python", "/opt/srunbook/bench/ranks/gloo_step.py", *options]
    step += ["--kill-on-bad-exit=1", f"--export=ALL,{environ}"]
    return sorted(printed_samples(state, step, program, nodes, timeout=600), key=lambda rank: int(rank["rank"]))


def slowest(ranks: list[dict[str, Any]], quantity: str) -> float:
    """Return the largest sample of all ranks."""
    return max(float(rank["samples"][quantity]) for rank in ranks)


def scaling(states: dict[str, State], repeats: int) -> list[Configuration]:
    """Measure strong and weak scaling of the guide's model."""
    wanted = [
        (link, kind, nodes)
        for link in LINKS
        for kind in ("strong", "weak")
        for nodes in (1, 2, 4)
        if nodes <= LARGEST[link]
    ]
    samples: dict[tuple[str, str, int], list[float]] = {key: [] for key in wanted}
    size = 0.0
    for repeat in range(repeats):
        for link, kind, nodes in wanted:
            batch = STRONG_BATCH // nodes if kind == "strong" else WEAK_BATCH
            ranks = measure(states[link], nodes, f"--batch={batch}", f"--hidden={HIDDEN}")
            samples[link, kind, nodes].append(round(slowest(ranks, "overlap_s"), 6))
            size = ranks[0]["samples"]["gradient_bytes"]
        print(f"repeat {repeat + 1} of {repeats}", flush=True)
    found = []
    for (link, kind, nodes), seconds in samples.items():
        bound = link_bound(size, nodes, LINKS[link])
        batch = STRONG_BATCH if kind == "strong" else WEAK_BATCH * nodes
        parameters = {
            "series": f"{kind}, {link}",
            "link": link,
            "kind": kind,
            "nodes": nodes,
            "batch": batch,
            "gradient_bytes": size,
        }
        parameters |= {"link_bound_s": round(bound, 6)}
        rates = [round(batch / nodes / wall, 3) for wall in seconds]
        found.append(
            Configuration(
                f"{kind}, {link}, {nodes} nodes", parameters, {"step_s": seconds, "samples_per_s_and_node": rates}
            )
        )
    return found


def overlap(states: dict[str, State], repeats: int) -> list[Configuration]:
    """Measure a model whose all-reduce takes as long as its backward pass, beside what the recurrence predicts."""
    link, nodes = "300mbit", 2
    rows: dict[str, list[float]] = {}
    for repeat in range(repeats):
        options = ["--model=wide", f"--batch={WIDE_BATCH}", f"--hidden={WIDE_HIDDEN}", "--modes=overlap,blocking,none"]
        ranks = measure(states[link], nodes, *options)
        ready, reduce = (
            [max(column) for column in zip(*(rank[name] for rank in ranks), strict=True)]
            for name in ("ready", "all_reduce")
        )
        alone = slowest(ranks, "none_s")
        row = {
            "step_s": slowest(ranks, "overlap_s"),
            "blocking_s": slowest(ranks, "blocking_s"),
            "alone_s": alone,
            "all_reduce_s": sum(reduce),
            "backward_s": alone - max(float(rank["forward"]) for rank in ranks),
            "predicted_s": predict_step(alone, ready, reduce),
        }
        for name, value in row.items():
            rows.setdefault(name, []).append(round(value, 6))
        print(f"repeat {repeat + 1} of {repeats}: {json.dumps(row)}", flush=True)
    medians = {name: statistics.median(values) for name, values in rows.items()}
    for name in ("step_s", "blocking_s"):
        print(f"{name} differs from predicted_s by {medians[name] / medians['predicted_s'] - 1:+.1%}")
    print(f"all-reduce / backward: {medians['all_reduce_s'] / medians['backward_s']:.0%}")
    size = float(ranks[0]["samples"]["gradient_bytes"])
    parameters = {"link": link, "nodes": nodes, "batch": WIDE_BATCH * nodes, "gradient_bytes": size}
    parameters |= {"buckets": int(ranks[0]["samples"]["buckets"])}
    return [Configuration("eight wide layers", {**parameters, "link_bound_s": link_bound(size, nodes, 300e6)}, rows)]


def main() -> None:
    """Measure, and write both files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--slurm", default="22.05")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of both files")
    parser.add_argument("--only", choices=("scaling", "overlap"))
    options = parser.parse_args()
    for name, links, nodes, quota, take, model in (
        ("scaling", tuple(LINKS), 4, QUOTA, scaling, f"TrafficNet, hidden {HIDDEN}"),
        ("overlap", ("300mbit",), 2, PAIR_QUOTA, overlap, f"8 layers of {WIDE_HIDDEN}"),
    ):
        if options.only not in (None, name):
            continue
        try:
            states = {link: boot_link(link, nodes, quota, options.slurm) for link in links}
            write(
                options.output / f"gloo_{name}.json",
                take(states, options.repeats),
                versions={"torch": torch.__version__, "slurm": states[links[0]].root["slurm"]},
                parameters={**SHARED, "repeats": options.repeats, "model": model},
                machine={"cpu_quota": quota, "threads": 1},
            )
        finally:
            for link in links:
                cluster.down(f"bench-{link}")


if __name__ == "__main__":
    main()
