"""What `srunbook cluster up` leaves when a signal ends it at any instant. Needs Linux and root.

python bench/cluster_killed.py         # 20 instants; writes bench/results/cluster_killed.json

After each the next `up` or `down` of that name clears up; what is left after it should be nothing.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

from helpers.program import options_of, write
from measurements import Configuration

from srunbook import cluster

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from support.patience import PATIENCE  # noqa: E402
from support.traces import adopting_orphans, children, reap, traces  # noqa: E402

NAME = "bench-killed"
COMMAND = [sys.executable, "-c", "from srunbook.cli import main; main(prog_name='srunbook')", "cluster"]
SIGNALS = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)
THEN = ("down", "up")
"""The command that comes next; after `up`, the cluster is used and taken down."""


@dataclass(frozen=True)
class Kill:
    """An end of `up`.

    Args:
        number: The signal.
        seconds: When it comes, after the start of the command.
        then: The command that comes next.
    """

    number: signal.Signals
    seconds: float
    then: str


@dataclass(frozen=True)
class Outcome:
    """What came of it.

    Args:
        status: Exit status of the `up` that got the signal, 128 and the signal where that ended it.
        phase: How far it had come, as on record; empty without a record.
        at_once: Number of traces that it left, by kind.
        problem: What the next command said where it failed.
        left: Traces after the last `down`, by kind; only kinds of which there are any.
    """

    status: int
    phase: str
    at_once: dict[str, int]
    problem: str
    left: dict[str, list[str]]


def duration(name: str, options: list[str]) -> float:
    """Return the seconds that `up` takes, from the start of the command to its end."""
    started = time.monotonic()
    _run("up", name, options)
    took = time.monotonic() - started
    _run("down", name, [])
    return took


def draw(count: int, seconds: float, seed: str) -> list[Kill]:
    """Draw ends of `up`: one instant in each part of its duration, all signals and next commands alike often."""
    chance = random.Random(seed)
    kinds = list(islice(cycle((number, then) for then in THEN for number in SIGNALS), count))
    chance.shuffle(kinds)
    width = seconds / count
    return [Kill(number, (part + chance.random()) * width, then) for part, (number, then) in enumerate(kinds)]


def end(name: str, kill: Kill, options: list[str]) -> Outcome:
    """End an `up` at an instant, have the next command clear up, and look for what is left of the cluster."""
    before, own = traces(name), children()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen([*COMMAND, "up", "--name", name, *options], stdout=said, stderr=said)
        time.sleep(kill.seconds)
        process.send_signal(kill.number)
        status = process.wait()
    during = traces(name)
    at_once = {kind: len(during[kind] - before[kind]) for kind in before}
    state = cluster.read_state(name)
    try:
        if kill.then == "up":
            _run("up", name, options)
            _run("exec", name, ["--", "srun", "hostname"])
        _run("down", name, [])
        problem = ""
    except subprocess.CalledProcessError as error:
        problem = f"{error}: {error.stderr}"
    deadline = time.monotonic() + PATIENCE
    left = {"": {""}}
    while any(left.values()) and time.monotonic() < deadline:
        reap(children() - own)
        after = traces(name)
        left = {kind: after[kind] - before[kind] for kind in before}
        time.sleep(0.05)
    found = {kind: sorted(traces) for kind, traces in left.items() if traces}
    return Outcome(status if status >= 0 else 128 - status, state.phase if state else "", at_once, problem, found)


def _run(command: str, name: str, arguments: list[str]) -> None:
    line = [*COMMAND, command, "--name", name, *arguments]
    subprocess.run(line, check=True, capture_output=True, text=True)


def row(kill: Kill, outcome: Outcome) -> dict[str, float]:
    """Return the samples of one end."""
    found = {
        "at_s": round(kill.seconds, 3),
        "status": outcome.status,
        "next_is_up": int(kill.then == "up"),
        "next_failed": int(bool(outcome.problem)),
    }
    found |= {f"{kind}_at_once": count for kind, count in outcome.at_once.items()}
    found |= {f"{kind}_left": len(outcome.left.get(kind, ())) for kind in outcome.at_once}
    shown = ("processes", "cgroups")
    return found | {"rest_left": sum(len(left) for kind, left in outcome.left.items() if kind not in shown)}


def main() -> None:
    """End `up` at each instant, and write the file."""
    options = options_of(__doc__, "cluster_killed", ends=20, slurm="22.05", nodes=2, seed="1")

    signal.signal(signal.SIGINT, signal.default_int_handler)  # `up` hears it, also where this runs under nohup
    with adopting_orphans():
        cluster.down(NAME)
        kind = ["--slurm", options.slurm, "--nodes", str(options.nodes)]
        took = duration(NAME, kind)
        samples: dict[str, dict[str, list[float]]] = {number.name: {} for number in SIGNALS}
        for kill in draw(options.ends, took, options.seed):
            outcome = end(NAME, kill, kind)
            print(
                f"{kill.number.name} after {kill.seconds:.2f} s of {took:.2f} s, then {kill.then}: {outcome}",
                flush=True,
            )
            for quantity, value in row(kill, outcome).items():
                samples[kill.number.name].setdefault(quantity, []).append(value)
    write(
        options.output,
        [Configuration(name, {"signal": name}, taken) for name, taken in samples.items() if taken],
        parameters={
            "ends": options.ends,
            "seed": options.seed,
            "slurm": options.slurm,
            "nodes": options.nodes,
            "up_s": round(took, 3),
        },
    )


if __name__ == "__main__":
    main()
