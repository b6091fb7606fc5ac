"""Whether a rank hangs as it frees a model in DistributedDataParallel and its process group, in either order.

python bench/torch_leave.py     # writes bench/results/torch_leave.json

Two ranks on gloo share one CPU, so that the threads of gloo are late. A rank that makes no group for a while hangs.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import subprocess
import sys
from pathlib import Path

import torch
from helpers.program import options_of, write
from measurements import Configuration

HERE = Path(__file__).resolve().parent
ORDERS = ("model-last", "model-first")


def groups_made(order: str, groups: int, silent: float) -> int:
    """Run two ranks; return how many groups the first of them to stop had freed."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    own = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, HERE / "ranks" / "torch_leave.py", order, str(groups)]
    cpu = min(os.sched_getaffinity(0))
    made = {}
    with contextlib.ExitStack() as stack, selectors.DefaultSelector() as selector:
        for rank in (0, 1):
            process = stack.enter_context(
                subprocess.Popen(["taskset", "-c", str(cpu), *command], env={**own, "RANK": str(rank)}, stdout=-1)
            )
            stack.callback(process.kill)
            assert process.stdout
            made[process.stdout.fileno()] = 0
            selector.register(process.stdout, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(timeout=silent)
            if not ready:
                break
            for key, _ in ready:
                text = os.read(key.fd, 65536)
                made[key.fd] += text.count(b"\n")
                if not text:
                    selector.unregister(key.fileobj)
    return min(made.values())


def main() -> None:
    """Measure both orders and write the file."""
    options = options_of(__doc__, "torch_leave", runs=5, groups=300, silent=15.0)
    rows = []
    for order in ORDERS:
        made = [groups_made(order, options.groups, options.silent) for _ in range(options.runs)]
        print(f"{order}: {made} of {options.groups} groups", flush=True)
        hung = float(sum(count < options.groups for count in made))
        samples = {"groups": [float(count) for count in made], "hung": [hung]}
        rows.append(Configuration(order, {"freed_first": "model" if order == "model-first" else "group"}, samples))
    parameters = {"ranks": 2, "cpus": 1, "runs": options.runs, "groups": options.groups}
    write(options.output, rows, versions={"torch": torch.__version__}, parameters=parameters)


if __name__ == "__main__":
    main()
