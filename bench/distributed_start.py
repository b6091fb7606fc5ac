"""What `initialize_distributed()` adds to `jax.distributed.initialize()`: two processes, both calls in turn.

python bench/distributed_start.py      # writes bench/results/distributed_start.json

JAX is imported before. A start ends when a process knows all devices. A sample begins when the last process calls, and
ends when the last one is through, so that the start of the processes themselves does not count.

Both calls are measured twice: with processes that come as they come, and with a process 1 that waits until process 0
has had time to listen. JAX by itself is slow when another process comes before process 0 listens.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from pathlib import Path

from helpers.program import write

RESULT = Path(__file__).parent / "results" / "distributed_start.json"
JAX, OURS = "jax.distributed.initialize()", "initialize_distributed()"
ORDERS = {"as they come": 0.0, "process 0 first": 0.5}
"""How long process 1 waits, in seconds."""


def worker(call: str, order: str) -> None:
    """Start JAX in one process, and print when it began and when it was through."""
    import jax

    if os.environ["SLURM_PROCID"] != "0":
        time.sleep(ORDERS[order])
    begin = time.monotonic()  # of the machine, so that processes can be compared
    if call == JAX:
        jax.distributed.initialize()
        imported = begin
    else:
        from srunbook import initialize_distributed

        imported = time.monotonic()
        initialize_distributed()
    count = jax.device_count()
    end = time.monotonic()
    assert count == jax.process_count() == 2
    sys.stdout.write("times " + json.dumps([begin, imported, end]) + "\n")
    sys.stdout.flush()
    jax.distributed.shutdown()


def sample(call: str, order: str) -> dict[str, float]:
    """Start two processes once; return milliseconds."""
    from srunbook import simulate

    # Python keeps what it compiled, as it does for an installed package, though it was told not to write here.
    environ = {"PYTHONDONTWRITEBYTECODE": ""}
    result = simulate.run([sys.executable, __file__, "--worker", call, order], nodes=2, timeout=120, env=environ)
    times = [json.loads(text) for text in re.findall(r"times (\[.*\])", result.output)]
    if result.returncode != 0 or len(times) != 2:
        raise SystemExit(f"{call}: {result.failure}\n{result.output}")
    begins, imports, ends = zip(*times, strict=True)
    found = {"start_ms": 1e3 * (max(ends) - max(begins))}
    if call == OURS:
        found["of_which_import_ms"] = 1e3 * max(one - begin for begin, one in zip(begins, imports, strict=True))
    return found


def main() -> None:
    """Take the samples in turn."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--output", type=Path, default=RESULT)
    parser.add_argument("--worker", nargs=2, metavar=("CALL", "ORDER"), help="only start JAX, as one of the processes")
    options = parser.parse_args()
    if options.worker:
        worker(*options.worker)
        return

    import jax
    from measurements import Configuration

    import srunbook

    cases = [(call, order) for order in ORDERS for call in (JAX, OURS)]
    samples: dict[tuple[str, str], dict[str, list[float]]] = {case: {} for case in cases}
    load = round(os.getloadavg()[0], 2)
    for repeat in range(options.repeats + 1):
        for case in cases:
            for quantity, value in sample(*case).items():
                if repeat:  # the first one fills the page cache
                    samples[case].setdefault(quantity, []).append(round(value, 3))
    for order in ORDERS:
        ours, plain = samples[OURS, order], samples[JAX, order]
        pairs = zip(ours["start_ms"], plain["start_ms"], strict=True)
        ours["added_ms"] = [round(one - other, 3) for one, other in pairs]
    configurations = [
        Configuration(f"{call}, {order}", {"call": call, "processes_start": order}, samples[call, order])
        for call, order in cases
    ]
    write(
        options.output,
        configurations,
        versions={"srunbook": srunbook.__version__, "jax": jax.__version__},
        parameters={
            "repeats": options.repeats,
            "warm_up": 1,
            "order": "in turn",
            "processes": 2,
            "devices": 2,
            "load_before": load,
        },
    )


if __name__ == "__main__":
    main()
