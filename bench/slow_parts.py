"""What four mistakes cost a training on two nodes, and which part of a step each makes longer, on a real Slurm.

sudo python bench/slow_parts.py       # writes bench/results/slow_parts.json

One rank on each of two nodes trains `slow.py`, with one mistake after the other. The parts come from the traces.
"""

from __future__ import annotations

from importlib.metadata import version

from helpers.program import EXAMPLES, boot, example, options_of, write
from measurements import Configuration

from srunbook import cluster

PROGRAM = EXAMPLES / "performance" / "slow.py"
SCRIPT = EXAMPLES.parent / "slurm" / "torchrun" / "ddp.sbatch"
MISTAKES = ("none", "data", "straggler", "item", "small")
QUOTA = 0.9
"""Of a CPU, for each node."""


def trial(state: cluster.State, mistake: str) -> dict[int, dict[str, float]]:
    """Run a job; return the milliseconds of each part of each rank's step."""
    inside = cluster.stage(state, SCRIPT, extra=[PROGRAM])
    submit = ["sbatch", "--parsable", "--nodes=2", "--gpus-per-node=1", SCRIPT.name, PROGRAM.name, mistake]
    job = cluster.capture(state, submit, folder=inside).stdout.strip()
    ended = cluster.await_job(state, job)
    if ended.state != "COMPLETED":
        raise SystemExit(f"{mistake}: {ended.state}\n{ended.output}")
    traces = state.folder / inside.removeprefix("/") / f"trace-{job}"
    ranks, sizes = example("performance/time_parts.py").analyse(traces)
    print(mistake, sizes, flush=True)
    return ranks


def main() -> None:
    """Measure, and write the file."""
    options = options_of(__doc__, "slow_parts", repeats=5, slurm="22.05", link="1gbit")
    state = boot(
        cluster.Specification(name="bench-slow", slurm=options.slurm, nodes=2, cpu_quota=QUOTA, link=options.link)
    )
    samples: dict[tuple[str, int], dict[str, list[float]]] = {}
    try:
        for _ in range(options.repeats):
            for mistake in MISTAKES:
                for rank, parts in trial(state, mistake).items():
                    row = samples.setdefault((mistake, rank), {})
                    for part, time in {**parts, "step": sum(parts.values())}.items():
                        row.setdefault(f"{part}_ms", []).append(round(time, 3))
                        print(mistake, rank, part, f"{time:.4g}", flush=True)
    finally:
        cluster.down("bench-slow")
    write(
        options.output,
        [
            Configuration(f"{mistake}, rank {rank}", {"mistake": mistake, "rank": rank}, row)
            for (mistake, rank), row in samples.items()
        ],
        versions={"torch": version("torch"), "slurm": options.slurm},
        parameters={"nodes": 2, "cpu_quota": QUOTA, "link": options.link, "steps": 10, "order": "in turn"},
    )


if __name__ == "__main__":
    main()
