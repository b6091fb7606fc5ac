"""What the programs of this folder print for whoever checks their runs: a line at the start, and one at the end.

Imported by slurm_multinode_example.py, coalescent_posterior.py, logistic_regression.py and device_map.py.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys
from dataclasses import asdict

import jax

from srunbook.distributed import DistributedInfo
from srunbook.formats import EndRecord, StartRecord
from srunbook.svgd import SVGDResult


def say(line: str) -> None:
    """Prints a line in one piece, so that the lines of processes do not mix."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def say_start(info: DistributedInfo) -> None:
    """Says who this process is."""
    on_cpu = jax.default_backend() == "cpu"
    record = StartRecord(
        rank=info.process_id,
        world_size=info.num_processes,
        local_rank=int(os.environ.get("SLURM_LOCALID", "0")),
        host=os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
        pid=os.getpid(),
        backend="gloo" if on_cpu else "nccl",
        device="cpu" if on_cpu else "cuda",
        framework=f"jax {jax.__version__}",
        job=os.environ.get("SLURM_JOB_ID"),
    )
    say("record " + json.dumps({"event": "start", **asdict(record)}))


def say_end(info: DistributedInfo, result: SVGDResult) -> None:
    """Says how many steps there were, and where the particles are: the same on all processes."""
    record = EndRecord(info.process_id, result.steps, hashlib.sha256(result.particles.tobytes()).hexdigest())
    say("record " + json.dumps({"event": "end", **asdict(record)}))
