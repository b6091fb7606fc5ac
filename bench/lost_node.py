"""What a dead node costs a training: with torchrun's elastic restart, and when Slurm requeues the job, on a real Slurm.

sudo python bench/lost_node.py       # writes bench/results/lost_node.json

One rank on each of four nodes trains; in the middle of epoch 2 a node loses its power. A fifth node is a spare for the
jobs that Slurm starts again. Each step takes a tenth of a second longer than in the published program.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from importlib.metadata import version
from itertools import pairwise

from helpers.program import EXAMPLES, boot, options_of, write
from measurements import Configuration

from srunbook import cluster
from srunbook.cluster import faults
from srunbook.slurm import expand_hostlist

SLURM = EXAMPLES.parent / "slurm"
WAYS = {
    "elastic": (SLURM / "runs_that_last" / "elastic.sbatch", EXAMPLES / "runs_that_last" / "elastic.py"),
    "requeue": (SLURM / "torchrun" / "requeue.sbatch", EXAMPLES / "torchrun" / "requeue.py"),
}
BATCHES = 32
"""Of an epoch, with three ranks as with four."""

DIES = {"another": 1, "first": 0}
"""Which of the job's nodes dies."""

FAULT = (2, 20)
"""Epoch and batch after which it dies."""

DONE = "            done += 1\n"
REPORT = """\
            if rank == 0:
                with open("steps", "a") as file:
                    print(epoch, done, world_size, file=file, flush=True)
            import time; time.sleep(0.1)
"""


@dataclass(frozen=True)
class Step:
    """A step that rank 0 has reported.

    Args:
        epoch: Its epoch.
        done: How many batches of this epoch are done with it.
        ranks: How many ranks there are.
    """

    epoch: int
    done: int
    ranks: int


def repeated(steps: list[Step]) -> tuple[Step, Step] | None:
    """Return the last step before the training continued from its checkpoint, and the first one after that."""
    places = [(step.epoch, step.done) for step in steps]
    return next((pair for pair, a, b in zip(pairwise(steps), places, places[1:], strict=False) if b <= a), None)


def trial(state: cluster.State, way: str, dies: str) -> dict[str, float]:
    """Let a node of a job die; return what that costs."""
    script, program = WAYS[way]
    inside = cluster.stage(state, script, extra=[program])
    folder = state.folder / inside.removeprefix("/")
    text = program.read_text(encoding="utf-8")
    (folder / program.name).write_text(text.replace(DONE, DONE + REPORT), encoding="utf-8")
    submit = ["sbatch", "--parsable", "--nodes=4", "--gpus-per-node=1", "--mem=8G", script.name]
    job = cluster.capture(state, submit, folder=inside).stdout.strip()
    log = folder / "steps"

    def steps() -> list[Step]:
        lines = log.read_text(encoding="utf-8").split("\n")[:-1] if log.exists() else []
        return [Step(*map(int, line.split())) for line in lines]

    def wait(count: int) -> None:
        while len(steps()) < count:
            time.sleep(0.05)

    wait(FAULT[0] * BATCHES + FAULT[1])
    named = cluster.capture(state, ["squeue", "--noheader", "--format=%N", f"--jobs={job}"]).stdout.strip()
    faults.kill_node(state, expand_hostlist(named)[DIES[dies]])
    at = time.monotonic()
    while not (again := repeated(steps())):
        time.sleep(0.05)
    back = time.monotonic() - at
    last, first = again
    ended = cluster.await_job(state, job)
    if ended.state != "COMPLETED":
        raise SystemExit(f"{way}, {dies} node: {ended.state}\n{ended.output}")
    faults.heal(state)
    while set(cluster.node_states(state).values()) != {"idle"}:
        time.sleep(0.5)
    lost = (last.epoch - first.epoch) * BATCHES + last.done - (first.done - 1)
    return {"back_s": back, "lost_steps": lost, "ranks_after": first.ranks}


def main() -> None:
    """Measure, and write the file."""
    options = options_of(__doc__, "lost_node", repeats=3, slurm="22.05")
    state = boot(cluster.Specification(name="bench-lost", slurm=options.slurm, nodes=5))
    samples: dict[tuple[str, str], dict[str, list[float]]] = {}
    try:
        for _ in range(options.repeats):
            for way in WAYS:
                for dies in DIES:
                    for quantity, value in trial(state, way, dies).items():
                        samples.setdefault((way, dies), {}).setdefault(quantity, []).append(value)
                        print(way, dies, quantity, f"{value:.4g}", flush=True)
    finally:
        cluster.down("bench-lost")
    write(
        options.output,
        [
            Configuration(f"{way}, {dies} node", {"way": way, "dead node": dies}, taken)
            for (way, dies), taken in samples.items()
        ],
        versions={"torch": version("torch"), "slurm": state.root["slurm"]},
        parameters={"nodes": 4, "ranks_per_node": 1, "repeats": options.repeats, "order": "in turn"},
        machine={"SlurmdTimeout_s": 40, "cred_expire_s": 20},
    )


if __name__ == "__main__":
    main()
