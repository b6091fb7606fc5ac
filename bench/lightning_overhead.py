"""What Lightning costs beside plain DDP: the programs of "One model, four launchers", started in turn on a real Slurm.

sudo python bench/lightning_overhead.py    # writes bench/results/lightning_overhead.json and lightning_switches.json

Needs root and a quiet machine with two cores, for it boots a cluster of one node with `srunbook cluster`. Each repeat
is four job steps, one for each launcher, and a fifth in which one pair of processes runs plain DDP, and Lightning with
its switches, in turn. Where a repeat begins goes round.
"""

from __future__ import annotations

import argparse
import difflib
import importlib.metadata
from pathlib import Path
from typing import Any

from helpers.lightning_job import Samples, run, step
from helpers.program import boot, write
from measurements import Configuration

from srunbook import cluster

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent / "examples" / "lightning"
RESULTS = HERE / "results"
CLUSTER = "bench-lightning"

SMALL = {"batch": 64, "steps": 110, "epochs": 4}
LARGE = {"batch": 1024, "steps": 15, "epochs": 3, "hidden": 512}
SIZES = {"small": SMALL, "large": LARGE}

SRUN = "srun --ntasks-per-node=2 --kill-on-bad-exit=1 python"
TORCHRUN = "srun --ntasks=1 --ntasks-per-node=1 torchrun --standalone --nproc-per-node=2"
LAUNCHERS = {
    "one process": ("python", "one_process.py"),
    "srun": (SRUN, "srun_ddp.py"),
    "torchrun": (TORCHRUN, "torchrun_ddp.py"),
    "Lightning": (SRUN, "lightning_ddp.py"),
}
"""How each program is started."""

ALL = {
    "logger": True,
    "enable_checkpointing": True,
    "enable_progress_bar": True,
    "enable_model_summary": True,
    "log": True,
}
"""What a Trainer does unless it is told otherwise, and a loss that is logged at each step."""

SWITCHES: dict[str, dict[str, Any] | None] = {
    "plain": None,
    "all off": {},
    "all on": ALL,
    "all on but the logger": {**ALL, "logger": False},
    "all on but checkpoints": {**ALL, "enable_checkpointing": False},
    "all on but the progress bar": {**ALL, "enable_progress_bar": False},
    "all on but the model summary": {**ALL, "enable_model_summary": False},
    "all on but self.log": {**ALL, "log": False},
}
ONCE = ("plain", "all off", "all on")
"""What the large model is trained with: there a switch is lost in the noise."""


def launcher_steps(repeat: int) -> list[str]:
    """Write the lines that start each launcher once, as a step of its own."""
    return [
        step(launcher, [{"name": name, "repeat": repeat, "program": program, **SMALL}])
        for name, (launcher, program) in LAUNCHERS.items()
    ]


def switch_step(repeat: int) -> str:
    """Write the line for plain DDP and Lightning in turn, in one pair of processes; an unnamed case warms up."""
    cases: list[dict[str, Any]] = []
    for size, shape in SIZES.items():
        for name, trainer in SWITCHES.items():
            if size == "large" and name not in ONCE:
                continue
            program = {"program": "srun_ddp.py"} if trainer is None else {"program": "lightning_ddp.py"}
            options = {} if trainer is None else {"trainer": trainer}
            cases.append({"name": f"{size}: {name}", "repeat": repeat, **program, **shape, **options})
    first = repeat * 3 % len(cases)
    warm_up = [{**case, "name": "", "epochs": 1} for case in cases if case["name"] in ("small: plain", "small: all on")]
    return step(SRUN, [*warm_up, *cases[first:], *cases[:first]])


def lines_of(program: str) -> tuple[int, int]:
    """Count the lines of a program, and those that are not in the program of one process."""
    lines = (EXAMPLES / program).read_text(encoding="utf-8").splitlines()
    base = (EXAMPLES / "one_process.py").read_text(encoding="utf-8").splitlines()
    added = [line for line in difflib.ndiff(base, lines) if line.startswith("+ ") and line[2:].strip()]
    return len(lines), len(added)


def paired(values: list[float], base: list[float], *, percent: bool = False) -> list[float]:
    """Return what each repeat takes more than another that ran beside it."""
    return [
        round(100 * (value / other - 1) if percent else value - other, 6)
        for value, other in zip(values, base, strict=True)
    ]


def launchers(samples: Samples) -> list[Configuration]:
    """Measure the four programs, and what each takes more than srun's."""
    base = samples["srun"]
    found = []
    for name, (_, program) in LAUNCHERS.items():
        own = {quantity: samples[name][quantity] for quantity in ("start_s", "step_ms")}
        lines, added = lines_of(program)
        parameters = {"launcher": name, "program": program, "lines": lines, "added": added}
        more = {"more_start_s": paired(own["start_s"], base["start_s"])}
        if name != "one process":  # which has twice the samples in a step
            more["more_step_ms"] = paired(own["step_ms"], base["step_ms"])
        found.append(Configuration(name, parameters, {**own, **more}))
    return found


def switches(samples: Samples) -> list[Configuration]:
    """Measure Lightning with its switches, and what it takes more than plain DDP in the same processes."""
    found = []
    for size in SIZES:
        base = samples[f"{size}: plain"]["step_ms"]
        for name in SWITCHES:
            own = samples.get(f"{size}: {name}", {}).get("step_ms")
            if own is None or name == "plain":
                continue
            more = {"more_ms": paired(own, base), "more_percent": paired(own, base, percent=True)}
            parameters = {"model": size, "Lightning": name}
            found.append(Configuration(f"{size}: {name}", parameters, {"plain_step_ms": base, "step_ms": own, **more}))
    return found


def main() -> None:
    """Measure, and write both files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--slurm", default="22.05")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of both files")
    options = parser.parse_args()

    state = boot(cluster.Specification(name=CLUSTER, slurm=options.slurm, nodes=1))
    try:
        rounds = [[*launcher_steps(repeat), switch_step(repeat)] for repeat in range(options.repeats)]
        turned = [lines[number % 5 :] + lines[: number % 5] for number, lines in enumerate(rounds)]
        steps = [line for lines in turned for line in lines]
        samples = run(state, steps, nodes=1, tasks=2, repeats=options.repeats, timeout=1200)
    finally:
        cluster.down(CLUSTER)
    shared = {"repeats": options.repeats, "processes": 2, "across_ranks": "maximum", "order": "in turn"}
    for name, configurations, parameters in (
        ("lightning_overhead", launchers(samples), SMALL),
        ("lightning_switches", switches(samples), SIZES),
    ):
        write(
            options.output / f"{name}.json",
            configurations,
            versions={
                **{package: importlib.metadata.version(package) for package in ("torch", "lightning")},
                "slurm": state.root["slurm"],
            },
            parameters={**shared, **parameters},
            machine={"threads": 1},
        )


if __name__ == "__main__":
    main()
