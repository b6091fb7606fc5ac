"""One rank of bench/fit_traffic.py and bench/fit_step_times.py: runs programs of the guide *When it does not fit*.

Started by srun, one on each node, with the folder of the programs and an order in JSON for each run. The runs follow
each other, each in a fork, so that PyTorch is imported once. Of each, the rank prints as a line of JSON how many bytes
its node sent in a step, and how many seconds a step took.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
import traceback
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch.distributed.checkpoint.state_dict
import torch.distributed.fsdp
import torch.distributed.nn
import torch.distributed.pipelining
import torch.distributed.tensor.parallel  # noqa: F401 - all of them here, before there are forks
from torch.optim.optimizer import register_optimizer_step_post_hook


def sent() -> int:
    """Return the bytes that the interfaces of this node have sent, headers and all, without the loopback."""
    lines = Path("/proc/net/dev").read_text(encoding="ascii").splitlines()[2:]
    counters = {name.strip(): numbers.split() for name, _, numbers in (line.partition(":") for line in lines)}
    return sum(int(numbers[8]) for name, numbers in counters.items() if name != "lo")


def run(program: Path, order: dict[str, Any]) -> dict[str, float]:
    """Run a program for a few steps; return the bytes that its node sent in a step, and the seconds of a step."""
    text = program.read_text(encoding="utf-8")
    for old, new in {"STEPS = 40\n": f"STEPS = {order['steps']}\n", **order["edits"]}.items():
        if text.count(old) != 1:
            raise SystemExit(f"error: {program.name} has {old!r} {text.count(old)} times; expected it once")
        text = text.replace(old, new)
    seen: list[tuple[int, float]] = []
    register_optimizer_step_post_hook(lambda *_: seen.append((sent(), time.perf_counter())))
    sys.argv = [str(program), *order["arguments"]]
    exec(compile(text, program, "exec"), {"__name__": "__main__"})
    counters, clock = zip(*seen[order["warm_up"] - 1 :], strict=True)
    seconds = [end - start for start, end in pairwise(clock)]
    return {"sent": (counters[-1] - counters[0]) / len(seconds), "step_s": statistics.median(seconds)}


def become(order: dict[str, Any], program: Path, folder: str) -> None:
    """Turn this process into a run of a program, print what was found, and do not return."""
    status = 1
    try:
        os.chdir(folder)
        found = {"name": order["name"], **run(program, order)}
        sys.stdout.write(f"sample {json.dumps(found)}\n")
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def main() -> None:
    """Run each order in a fork, in a folder of its own and at a port of its own."""
    rank, world, port = (os.environ[name] for name in ("SLURM_PROCID", "SLURM_NTASKS", "MASTER_PORT"))
    os.environ |= {"RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    for number, order in enumerate(map(json.loads, sys.argv[2:])):
        os.environ["MASTER_PORT"] = str(int(port) + number)
        with tempfile.TemporaryDirectory() as folder:
            child = os.fork()
            if child == 0:
                become(order, Path(sys.argv[1], order["program"]), folder)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status != 0:
            raise SystemExit(f"error: {order['name']} ended with status {status} on rank {rank}")


if __name__ == "__main__":
    main()
