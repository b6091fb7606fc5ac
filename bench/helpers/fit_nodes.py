"""Runs programs of the guide *When it does not fit* on four nodes, with one rank on each."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from helpers.program import printed_samples

from srunbook.cluster import State

NODES = 4
PLACE = "/opt/srunbook"
PIECES = 4
"""Of a batch, where gradients are accumulated."""

STEPS, WARM_UP = 9, 3
"""Steps of a run, and how many of them are not counted, for connections are made in the first ones."""


@dataclass(frozen=True)
class Run:
    """What a rank runs.

    Args:
        program: Of the guide.
        arguments: The size of its groups, which lie across nodes here.
        edits: What is replaced in its text, each once, besides the number of steps.
    """

    program: str
    arguments: list[str] = field(default_factory=list)
    edits: Mapping[str, str] = field(default_factory=dict)


PROGRAMS = {
    "ddp.py": Run("ddp.py"),
    "fsdp.py": Run("fsdp.py"),
    "hsdp.py": Run("hsdp.py", ["2"]),
    "tensor_parallel.py": Run("tensor_parallel.py"),
    "fsdp_tp.py": Run("fsdp_tp.py", ["2"]),
    "pipeline.py": Run("pipeline.py"),
}


def in_pieces(*lines: str) -> Run:
    """Return FSDP that computes a batch in pieces, with some lines before each of them."""
    loss, backward = "        loss = cross_entropy(", "        (loss * world_size).backward()"
    loop = f"        for number, (x, y) in enumerate(zip(x.chunk({PIECES}), y.chunk({PIECES})), 1):\n"
    before = "".join(f"            {line}\n" for line in lines)
    return Run("fsdp.py", edits={loss: f"{loop}{before}    {loss}", backward: f"    {backward}"})


LAST_ONLY = f"model.set_requires_gradient_sync(number == {PIECES})"
ACCUMULATED = {
    "after each piece": in_pieces(),
    "after the last piece": in_pieces(LAST_ONLY),
    "after the last piece, parameters fetched once": in_pieces(
        LAST_ONLY, "model.set_reshard_after_forward(False)", f"model.set_reshard_after_backward(number == {PIECES})"
    ),
}
"""By when gradients are sent."""


def run_steps(state: State, runs: Mapping[str, Run]) -> dict[str, list[dict[str, float]]]:
    """Run programs in one job step, one after the other; return what each rank counted, by the names of the runs.

    Raises:
        SystemExit: A rank failed or said nothing.
    """
    port = 25000 + int.from_bytes(os.urandom(2), "big") % 7000
    step = ["srun", f"--nodes={NODES}", "--ntasks-per-node=1", "--kill-on-bad-exit=1"]
    environ = f"--export=ALL,MASTER_ADDR=node1,MASTER_PORT={port},OMP_NUM_THREADS=1"
    rank = ["/home/alice/torch-env/bin/python", f"{PLACE}/bench/ranks/fit_step.py", f"{PLACE}/examples/does_not_fit"]
    common = {"steps": STEPS, "warm_up": WARM_UP}
    orders = [json.dumps({"name": name, **common, **asdict(run)}) for name, run in runs.items()]
    samples = printed_samples(state, [*step, environ], [*rank, *orders], NODES * len(runs), timeout=600)
    return {name: [one for one in samples if one["name"] == name] for name in runs}
