"""What a network gives: an all-reduce of each size by PyTorch and JAX, and ways to send less, on a real Slurm.

sudo python bench/network.py      # writes bench/results/network_bandwidth.json and bench/results/network_less.json

One rank on each of two nodes, over links of two rates; the programs are the published ones.
"""

from __future__ import annotations

import json
import re
from importlib.metadata import version

from helpers.program import EXAMPLES, RESULTS, boot, options_of, write
from measurements import Configuration

from srunbook import cluster

PROGRAMS = EXAMPLES / "performance"
SLURM = EXAMPLES.parent / "slurm"
TORCH, JAX = SLURM / "torchrun" / "ddp.sbatch", SLURM / "jax_multinode" / "data_parallel.sbatch"
LINKS = ("300mbit", "1gbit")
QUOTA = 0.9
"""Of a CPU, for each node."""


def run(state: cluster.State, script: str, program: str) -> tuple[str, str]:
    """Run a job; return what it printed, and the JSON file that it left, if any."""
    chosen = TORCH if script == "PyTorch" else JAX
    inside = cluster.stage(state, chosen, extra=[PROGRAMS / program])
    submit = ["sbatch", "--parsable", "--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=1", chosen.name, program]
    job = cluster.capture(state, submit, folder=inside).stdout.strip()
    ended = cluster.await_job(state, job)
    if ended.state != "COMPLETED":
        raise SystemExit(f"{program}: {ended.state}\n{ended.output}")
    left = sorted((state.folder / inside.removeprefix("/")).glob("bandwidth-*.json"))
    return ended.output, left[0].read_text(encoding="utf-8") if left else ""


def main() -> None:
    """Measure, and write both files."""
    options = options_of(__doc__, "network_bandwidth", repeats=3, slurm="22.05")
    bandwidth: dict[tuple[str, str, int], dict[str, list[float]]] = {}
    less: dict[str, dict[str, list[float]]] = {}
    for link in LINKS:
        name = f"bench-network-{link}"
        state = boot(cluster.Specification(name=name, slurm=options.slurm, nodes=2, cpu_quota=QUOTA, link=link))
        try:
            for _ in range(options.repeats):
                for framework, program in (("PyTorch", "bandwidth.py"), ("JAX", "bandwidth_jax.py")):
                    for row in json.loads(run(state, framework, program)[1])["rows"]:
                        kept = bandwidth.setdefault((framework, link, row["bytes"]), {"time_us": [], "busbw_MBps": []})
                        kept["time_us"].append(round(row["us"], 1))
                        kept["busbw_MBps"].append(round(row["busbw_MBps"], 3))
                printed = run(state, "PyTorch", "send_less.py")[0]
                for way, time in re.findall(r"^(?:\d+: )?(.*?) +([\d.]+) ms for", printed, re.MULTILINE):
                    less.setdefault(way, {}).setdefault(f"at_{link}_ms", []).append(float(time))
                    print(link, way, time, flush=True)
        finally:
            cluster.down(name)
    shared = {"nodes": 2, "ranks_per_node": 1, "cpu_quota": QUOTA}
    write(
        options.output,
        [
            Configuration(
                f"{framework}, {link}, {size} bytes",
                {"framework_and_link": f"{framework}, {link}", "size_kB": size / 1024},
                taken,
            )
            for (framework, link, size), taken in bandwidth.items()
        ],
        versions={name: version(name) for name in ("torch", "jax")},
        parameters=shared,
    )
    write(
        RESULTS / "network_less.json",
        [Configuration(way, {"way": way}, taken) for way, taken in less.items()],
        versions={"torch": version("torch")},
        parameters=shared,
    )


if __name__ == "__main__":
    main()
