"""Many JAX devices per process against one device with many threads, on CPUs: start, connections, step.

python bench/svgd_devices.py           # writes bench/results/svgd_devices.json

All processes run on this machine, under `srunbook simulate`. So step times of layouts with the same number of
processes can be compared with each other, and those of different numbers cannot.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import re
import resource
import sys
import time
from pathlib import Path
from typing import Any

from helpers.program import write
from measurements import Configuration

import srunbook
from srunbook import simulate

RESULT = Path(__file__).parent / "results" / "svgd_devices.json"
LAYOUTS = ((1, 1), (1, 2), (1, 4), (1, 16), (2, 1), (2, 2), (2, 8), (2, 32), (4, 1), (4, 4), (4, 16))
"""Processes, and devices of each: 1 to 64 devices in all."""

FILES = 1024
"""How many files a process may open on most systems, unless somebody has raised it; a connection is one."""

CHEAP = {"n": 4096, "d": 8}
COSTLY = {"n": 1024, "d": 8, "rows": 50}


def sockets() -> tuple[int, int]:
    """Count the TCP connections of this process, and all its sockets."""
    own = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = str(entry.readlink())
        except OSError:  # it was closed meanwhile
            continue
        if target.startswith("socket:["):
            own.add(target.removeprefix("socket:[").removesuffix("]"))
    established = 0
    for name in ("tcp", "tcp6"):
        for line in Path("/proc/self/net", name).read_text(encoding="ascii").splitlines()[1:]:
            fields = line.split()
            established += fields[3] == "01" and fields[9] in own
    return established, len(own)


def worker(files: int) -> None:
    """Start JAX in one process, make steps, and print what it saw."""
    if files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    import jax

    begin = time.monotonic()
    from srunbook import initialize_distributed

    info = initialize_distributed()
    known = time.monotonic()
    import jax.numpy as jnp
    from helpers.svgd_loop import Loop, coalescent, normal, peak_mebibytes

    from srunbook.svgd import SVGD

    imported = time.monotonic()
    cheap = Loop(SVGD(lambda x: -0.5 * jnp.sum(x**2)), normal(CHEAP["n"], CHEAP["d"]), 5)
    stepped = time.monotonic()
    costly = Loop(SVGD(**coalescent(COSTLY["d"], COSTLY["rows"])), normal(COSTLY["n"], COSTLY["d"], 0.1), 3)
    found: dict[str, Any] = {"begin": begin, "known": known, "first_s": stepped - imported}
    found["step_ms"] = 1e3 * min(cheap() for _ in range(5))
    found["costly_step_ms"] = 1e3 * min(costly() for _ in range(3))
    found["connections"], found["sockets"] = sockets()
    found["peak_MiB"] = peak_mebibytes()
    found["threads"] = len(os.listdir("/proc/self/task"))  # noqa: PTH208 - only their number counts
    assert jax.device_count() == info.global_device_count
    sys.stdout.write("found " + json.dumps(found) + "\n")
    sys.stdout.flush()
    info.shutdown()


def run(processes: int, devices: int, files: int = 0) -> simulate.Result:
    """Run a layout, where each process may open so many files, or as many as this one."""
    return simulate.run(
        [sys.executable, "-W", "ignore", __file__, "--worker", str(files)],
        nodes=processes,
        env={"JAX_NUM_CPU_DEVICES": str(devices)},
        timeout=180,
    )


def sample(processes: int, devices: int) -> dict[str, float]:
    """Run a layout once; return the largest figure of all processes."""
    result = run(processes, devices)
    ranks = [json.loads(text) for text in re.findall(r"found (\{.*\})", result.output)]
    if result.returncode != 0 or len(ranks) != processes:
        raise SystemExit(f"{processes} x {devices}: {result.failure}\n{result.output[-3000:]}")
    found = {name: max(float(rank[name]) for rank in ranks) for name in ranks[0] if name not in ("begin", "known")}
    start = max(rank["known"] for rank in ranks) - max(rank["begin"] for rank in ranks)
    return {"start_s": start, **found}


def outcome(result: simulate.Result) -> str:
    """Say how a run ended."""
    return "hangs" if result.timed_out else "runs" if result.returncode == 0 else "ends with an error"


def main() -> None:
    """Take the samples of all layouts in turn."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--most", type=int, default=64, help="devices in all (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=RESULT)
    parser.add_argument("--worker", type=int, metavar="FILES", help="only run, as one of the processes")
    options = parser.parse_args()
    if options.worker is not None:
        worker(options.worker)
        return

    layouts = [layout for layout in LAYOUTS if layout[0] * layout[1] <= options.most]
    samples: dict[tuple[int, int], dict[str, list[float]]] = {layout: {} for layout in layouts}
    load = round(os.getloadavg()[0], 2)
    for _ in range(options.repeats):
        for layout in layouts:
            for quantity, value in sample(*layout).items():
                samples[layout].setdefault(quantity, []).append(round(value, 4))
    few = {layout: outcome(run(*layout, FILES)) for layout in layouts}
    configurations = [
        Configuration(
            f"{processes} x {devices}",
            {
                "processes": processes,
                "devices_per_process": devices,
                "devices": processes * devices,
                f"with_{FILES}_files": few[processes, devices],
            },
            samples[processes, devices],
        )
        for processes, devices in layouts
    ]
    write(
        options.output,
        configurations,
        versions={"srunbook": srunbook.__version__, "jax": importlib.metadata.version("jax")},
        parameters={
            "repeats": options.repeats,
            "order": "in turn",
            "across_processes": "maximum",
            "step": "n=4096, d=8, standard normal target; the least of 5 times",
            "costly_step": "n=1024, d=8, coalescent model with 50 genealogies; the least of 3 times",
            "load_before": load,
        },
    )


if __name__ == "__main__":
    main()
