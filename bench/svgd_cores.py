"""What a step of SVGD takes where two CPUs share a cache, and where they do not.

python bench/svgd_cores.py             # writes bench/results/svgd_cores.json

On a virtual machine the host moves the CPUs: for seconds or minutes two of them lie in parts of the processor that
share no cache. How far apart they are is measured between the steps, by what a message takes from one to the other.
Needs two CPUs, a C compiler and a quiet machine, and luck: it takes as many samples as the host gives of each.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from helpers.program import write
from measurements import Configuration

import srunbook

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "svgd_cores.json"
N, D = 4096, 8
FAR = 150
"""Nanoseconds there and back from which CPUs are called far apart; it takes about 50 or about 300."""


def worker(library: str, seconds: float) -> None:
    """Take pairs of samples: how far apart the CPUs are, before and after a step, and the step."""
    import jax.numpy as jnp
    from helpers.svgd_loop import Loop, normal

    from srunbook.svgd import SVGD

    distance = ctypes.CDLL(library).there_and_back
    distance.restype = ctypes.c_double
    cpus = sorted(os.sched_getaffinity(0))[:2]
    loop = Loop(SVGD(lambda x: -0.5 * jnp.sum(x**2)), normal(N, D), 5)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        before, step, after = distance(*cpus), loop(), distance(*cpus)
        if (before > FAR) == (after > FAR):  # else they were moved meanwhile
            found = {"far": before > FAR, "step_ms": 1e3 * step, "there_and_back_ns": (before + after) / 2}
            sys.stdout.write("found " + json.dumps(found) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Start workers with one device of two threads and with two devices, in turn."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each worker (default: %(default)s)")
    parser.add_argument("--worker", metavar="LIBRARY", help="only take samples, as one of the workers")
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    if options.worker:
        worker(options.worker, options.seconds)
        return
    load = round(os.getloadavg()[0], 2)
    samples: dict[tuple[int, bool], list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        library = str(Path(folder) / "distance.so")
        subprocess.run(
            ["cc", "-O2", "-shared", "-fPIC", "-pthread", "-o", library, str(HERE / "helpers" / "core_distance.c")],
            check=True,
        )
        for number in range(2 * options.rounds):
            devices = 1 + number % 2
            command = [sys.executable, "-W", "ignore", __file__, "--worker", library, f"--seconds={options.seconds}"]
            environ = {**os.environ, "JAX_NUM_CPU_DEVICES": str(devices)}
            output = subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout
            for text in re.findall(r"^found (.*)$", output, re.MULTILINE):
                found = json.loads(text)
                samples.setdefault((devices, found.pop("far")), []).append(found)
    rows = [
        Configuration(
            f"{devices} devices, {'far apart' if far else 'close'}",
            {"devices": devices, "cpus": "far apart" if far else "close"},
            {name: [round(one[name], 3) for one in found] for name in found[0]},
        )
        for (devices, far), found in sorted(samples.items())
    ]
    for row in rows:
        print(
            f"{row.name:24} step {row.median('step_ms'):.1f} ms, {row.median('there_and_back_ns'):.0f} ns", flush=True
        )
    write(
        options.output,
        rows,
        versions={"srunbook": srunbook.__version__, "jax": importlib.metadata.version("jax")},
        parameters={"n": N, "d": D, "far_ns": FAR, "load_before": load},
    )


if __name__ == "__main__":
    main()
