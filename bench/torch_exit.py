"""Whether a rank aborts at its end, by its model and by when `torch.distributed.nn` was imported.

python bench/torch_exit.py     # writes bench/results/torch_exit.json

Two ranks on gloo share one CPU, so that the threads of gloo are late. Each rank prints how many of these threads are
left after `destroy_process_group()`; a rank that ends by a signal has aborted.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import torch
from helpers.program import options_of, write
from measurements import Configuration

HERE = Path(__file__).resolve().parent
CASES = (
    ("late", "DistributedDataParallel"),
    ("early", "DistributedDataParallel"),
    ("early", "fully_shard"),
    ("early", "fully_shard, cache cleared"),
)
"""When `torch.distributed.nn` was imported, and what the model was given to."""


def one_run(when: str, model: str) -> tuple[int, bool]:
    """Run two ranks; return the threads of gloo that rank 0 had left, and whether a rank aborted."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    own = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    cpu = min(os.sched_getaffinity(0))
    command = ["taskset", "-c", str(cpu), sys.executable, str(HERE / "ranks" / "torch_exit.py"), when, model]
    ranks = [
        subprocess.Popen(command, env={**own, "RANK": rank}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for rank in ("0", "1")
    ]
    try:
        said = [process.communicate(timeout=120)[0] for process in ranks]
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    return int(said[0]), any(process.returncode < 0 for process in ranks)


def main() -> None:
    """Measure both and write the file."""
    options = options_of(__doc__, "torch_exit", runs=60)
    found: dict[tuple[str, str], list[tuple[int, bool]]] = {case: [] for case in CASES}
    for number in range(options.runs):
        for case in CASES:
            found[case].append(one_run(*case))
        print(number + 1, [sum(aborted for _, aborted in runs) for runs in found.values()], flush=True)
    rows = []
    for (when, model), runs in found.items():
        samples = {
            "threads_left": [float(threads) for threads, _ in runs],
            "aborted": [float(sum(aborted for _, aborted in runs))],
        }
        rows.append(Configuration(f"import-{when}-{model}", {"imported": when, "model": model}, samples))
    parameters = {"ranks": 2, "cpus": 1, "runs": options.runs}
    write(options.output, rows, versions={"torch": torch.__version__}, parameters=parameters)


if __name__ == "__main__":
    main()
