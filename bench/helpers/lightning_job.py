"""What bench/lightning_overhead.py and bench/lightning_nodes.py share: one job of many steps, and its samples."""

from __future__ import annotations

import json
import re
import shlex
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from srunbook import cluster
from srunbook.cluster import State

STEP = "/opt/srunbook/bench/ranks/lightning_step.py"
"""Where the nodes see the program that measures."""

JOB = """\
#!/bin/bash
#SBATCH --job-name=measure
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node={tasks}
#SBATCH --output=samples.txt
#SBATCH --error=errors.txt
set -euo pipefail
export PATH="$HOME/torch-env/bin:$PATH" PYTHONPATH=/opt/srunbook/examples/lightning OMP_NUM_THREADS=1
measure() {{ LAUNCHED_AT=$(date +%s.%N) "$@"; }}
{steps}
"""

Samples = dict[str, dict[str, list[float]]]
"""For each name, each quantity: a sample for each repeat."""


def step(launcher: str, cases: Sequence[dict[str, Any]]) -> str:
    """Write a line of the job: a launcher starts a process, or several, that run some cases in turn."""
    return f"measure {launcher} {STEP} {shlex.quote(json.dumps([*cases]))}"


def run(state: State, steps: Iterable[str], *, nodes: int, tasks: int, repeats: int, timeout: float) -> Samples:
    """Run all steps in one job; of a name and repeat, the sample is that of the slowest process.

    Args:
        state: The cluster.
        steps: Lines of the job.
        nodes: Nodes of the job.
        tasks: Tasks on each node.
        repeats: How many samples there have to be of each name and quantity.
        timeout: Seconds of the whole job.
    """
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "measure.sbatch")
        script.write_text(JOB.format(nodes=nodes, tasks=tasks, steps="\n".join(steps)), encoding="utf-8")
        staged = cluster.stage(state, script)
        job = cluster.submit(state, script, folder=staged, timeout=timeout)
    if job.state != "COMPLETED":
        errors = state.folder / staged.removeprefix("/") / "errors.txt"
        raise SystemExit(f"the job is {job.state}:\n{errors.read_text(encoding='utf-8')[-4000:]}")
    found: dict[tuple[str, int], dict[str, float]] = {}
    for text in re.findall(r"^sample (\{.*\})$", job.output, re.MULTILINE):
        sample = json.loads(text)
        slowest = found.setdefault((sample.pop("name"), sample.pop("repeat")), sample)
        slowest.update({quantity: max(slowest[quantity], value) for quantity, value in sample.items()})
    samples: Samples = {}
    for (name, _), values in sorted(found.items()):
        for quantity, value in values.items():
            samples.setdefault(name, {}).setdefault(quantity, []).append(value)
    for name, quantities in samples.items():
        if {len(values) for values in quantities.values()} != {repeats}:
            raise SystemExit(f"{name} has {quantities}, and {repeats} repeats were wanted")
    return samples
