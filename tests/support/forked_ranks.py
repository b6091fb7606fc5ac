"""Runs programs of the guides on several ranks that are forked, so that torch is imported once for all.

A script, which `forked.py` starts: one line of JSON on standard input asks for a run, one on
standard output answers. What torchrun would do besides (find the nodes, kill the rest) is not imitated.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import runpy
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from patience import PATIENCE
from ports import free_port


def become_rank(rank: int, order: dict[str, Any], port: int, folder: Path) -> None:
    """Turn this process into a rank that runs the program; do not return."""
    status = 1
    try:
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(folder / f"{name}.{rank}", os.O_WRONLY | os.O_CREAT), number)
        faulthandler.dump_traceback_later(PATIENCE - 5, file=2)  # where a rank stands that hangs
        world = order["nodes"] * order["processes"]
        os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank % order["processes"])}
        os.environ |= {"LOCAL_WORLD_SIZE": str(order["processes"]), "OMP_NUM_THREADS": "1"}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "SLURM_NNODES": str(order["nodes"])}
        os.environ |= {"SLURMD_NODENAME": f"node{rank // order['processes']}", **order["environ"]}
        os.chdir(order["directory"])
        if order["before"]:
            exec(order["before"], {})
        sys.argv = order["argv"]
        runpy.run_path(sys.argv[0], run_name="__main__")
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def run(order: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a program on all ranks; kill those that have not ended in time."""
    port = free_port()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pids = []
        for rank in range(order["nodes"] * order["processes"]):
            pid = os.fork()
            if pid == 0:
                become_rank(rank, order, port, folder)
            pids.append(pid)
        statuses: dict[int, int] = {}
        deadline = time.monotonic() + PATIENCE
        while len(statuses) < len(pids):
            for pid in set(pids) - set(statuses):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    statuses[pid] = os.waitstatus_to_exitcode(status)
                elif time.monotonic() > deadline:
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        return [
            {
                "status": statuses[pid],
                "stdout": (folder / f"out.{rank}").read_text(),
                "stderr": (folder / f"err.{rank}").read_text(),
            }
            for rank, pid in enumerate(pids)
        ]


def main() -> None:
    """Answers orders until there are no more."""
    sys.path.insert(0, sys.argv[1])
    os.environ["OMP_NUM_THREADS"] = "1"
    import matplotlib.figure  # noqa: F401
    import sklearn.datasets  # noqa: F401
    import torch.distributed.elastic.multiprocessing.errors
    import torch.nn.parallel  # noqa: F401

    for name in sys.argv[2:]:
        importlib.import_module(name)

    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
