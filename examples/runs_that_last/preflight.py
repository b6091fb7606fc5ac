"""Find the nodes that would stop or slow down a training: check each node alone, then in pairs.

    python preflight.py                                      # this machine alone
    srun python preflight.py check NODE... | python preflight.py judge NODE...
    sbatch preflight.sbatch                                  # all of this, and the training

`check` runs once on each node and prints what it finds. `judge` reads that, and prints which nodes are good.
"""

import json
import multiprocessing
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from datetime import timedelta

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # what hangs is in the result
import torch
import torch.distributed as dist

SLOWER = 4  # EDIT: a node is bad if something takes this many times as long as on most nodes
FREE = 1e9  # EDIT: bytes that the local disk must have left
CLOCK = 5  # EDIT: seconds by which two clocks may differ
FIELDS = (  # EDIT: `nvidia-smi --help-query-gpu` lists those of your driver
    "ecc.errors.uncorrected.volatile.total",
    "remapped_rows.pending",
    "remapped_rows.failure",
    "clocks_event_reasons.hw_slowdown",
)
ALONE, ROUNDS, ROUND = 20, 3, 8  # seconds for a node's own checks; rounds of pairs, and seconds for each
UNITS = {"disk": "MB/s", "compute": "GFLOP/s"}
BEGAN = time.monotonic()


def limited(end, function, *arguments):
    """Run a function in a process of its own, which may hang or crash; return what it found, or an error."""
    context = multiprocessing.get_context("fork")  # torch is imported already, and no GPU is in use yet
    ours, theirs = context.Pipe(duplex=False)

    def work():
        try:
            theirs.send(function(*arguments))
        except Exception as error:
            theirs.send({"error": f"{error}".strip().partition("\n")[0] or type(error).__name__})

    process = context.Process(target=work, daemon=True)
    process.start()
    theirs.close()
    try:
        if ours.poll(max(0, BEGAN + end - time.monotonic())):
            return ours.recv()
    except EOFError:
        return {"error": "the check crashed"}
    process.kill()
    return {"error": "no answer in time"}


def gpus():
    """Count the GPUs, and ask the driver and DCGM about them, where these commands exist."""
    found = {"given": int(os.environ.get("SLURM_GPUS_ON_NODE", 0)), "PyTorch": torch.cuda.device_count()}
    if shutil.which("nvidia-smi"):
        command = ["nvidia-smi", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"]
        asked = subprocess.run(command, capture_output=True, text=True, check=False)
        if asked.returncode:
            raise OSError(f"nvidia-smi: {asked.stdout}{asked.stderr}")
        rows = [re.split(", *", row) for row in asked.stdout.splitlines()]
        for gpu, values in enumerate(rows):
            for field, value in zip(FIELDS, values, strict=True):
                if value not in ("0", "No", "Not Active") and not value.startswith(("N/A", "[N")):
                    return {"error": f"GPU {gpu}: {field} is {value}"}
        found["nvidia-smi"] = len(rows)
    if shutil.which("dcgmi"):
        asked = subprocess.run(["dcgmi", "diag", "-r", "1"], capture_output=True, text=True, check=False)
        if failed := re.search(r"\| *([^|]*?) *\| *Fail\b", asked.stdout):
            return {"error": f"dcgmi diag: {failed[1]} failed"}
    return found


def fastest(device, repeats, work):
    """Return the seconds of the fastest repeat; the one before, which isn't counted, starts the libraries."""
    times = []
    for _ in range(1 + repeats):
        began = time.perf_counter()
        work()
        if device != "cpu":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - began)
    return min(times[1:])


def disk():
    """Write 16 MiB to the local disk."""
    folder = os.environ.get("SLURM_TMPDIR") or tempfile.gettempdir()  # EDIT: the local disk of your site
    if (free := shutil.disk_usage(folder).free) < FREE:
        return {"error": f"{free / 1e9:.2f} GB free in {folder}, less than {FREE / 1e9:g}"}
    block = bytes(2**24)
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        seconds = fastest("cpu", 5, lambda: (file.seek(0), file.write(block), os.fsync(file.fileno())))
    return {"speed": len(block) / seconds / 1e6}


def devices():
    """Return the GPUs, or the CPU."""
    return [f"cuda:{gpu}" for gpu in range(torch.cuda.device_count())] or ["cpu"]


def compute():
    """Multiply matrices on each GPU, or on one core; the slowest GPU counts."""
    torch.set_num_threads(1)
    speeds = []
    for device in devices():
        size, kind = (1024, torch.float32) if device == "cpu" else (8192, torch.bfloat16)
        matrix = torch.ones(size, size, device=device, dtype=kind)
        seconds = fastest(device, 5, lambda matrix=matrix: [matrix @ matrix for _ in range(5)])
        speeds.append(5 * 2 * size**3 / seconds / 1e9)
    return {"speed": min(speeds)}


def network(host, port, rank, seconds):
    """Add up numbers with another node, from each GPU; the slowest GPU counts. Compare the clocks as well."""
    dist.init_process_group(
        "nccl" if torch.cuda.is_available() else "gloo",
        init_method=f"tcp://{host}:{port}",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=seconds),
    )
    speeds = []
    for device in devices():
        data = torch.ones(2**20 if device == "cpu" else 2**24, device=device)
        seconds = fastest(device, 4, lambda data=data: dist.all_reduce(data))
        speeds.append(data.nbytes / seconds / 1e6)
    clocks = torch.zeros(2, dtype=torch.float64, device=device)
    clocks[rank] = time.time()
    dist.all_reduce(clocks)
    return {"speed": min(speeds), "clock": (clocks[0] - clocks[1]).item()}  # the end of the process frees the rest


def pairs(nodes):
    """Give the pairs of each round, in which a node meets at most one other, and another one each time."""
    ring = [*nodes, None] if len(nodes) % 2 else [*nodes]
    for _ in range(min(ROUNDS, len(ring) - 1)):
        half = len(ring) // 2
        yield [pair for pair in zip(ring[:half], reversed(ring[half:]), strict=True) if None not in pair]
        ring = [ring[0], ring[-1], *ring[1:-1]]


def check(nodes):
    """Give what this node finds, check by check."""
    me = os.environ.get("SLURMD_NODENAME", nodes[0])
    for function in (gpus, disk, compute):
        yield {"node": me, "check": function.__name__, **limited(ALONE, function)}
    first_port = 20000 + int(os.environ.get("SLURM_JOB_ID", 0)) % 5000
    for number, meetings in enumerate(pairs(nodes)):
        for pair in meetings:
            if me in pair:
                port = first_port + ROUNDS * nodes.index(pair[0]) + number
                end = ALONE + ROUND * (number + 1)  # the other may be late: it has waited for a dead node before
                yield {"node": me, "pair": pair, **limited(end, network, pair[0], port, pair.index(me), end)}


def judge(nodes, found):
    """Compare the nodes; print which are good and, on stderr, what was found."""
    heard = [node for node in nodes if any(line["node"] == node for line in found)]
    bad = {node: [] if node in heard else ["no answer"] for node in nodes}
    shown = {node: [] for node in nodes}
    for name in ("gpus", "disk", "compute"):
        own = {line["node"]: line for line in found if line.get("check") == name}
        for node in heard:
            if error := own.get(node, {"error": "no answer in time"}).get("error"):
                bad[node].append(f"{name}: {error}")
        for way in ("nvidia-smi", "PyTorch"):
            counts = {node: line.get(way, 0) for node, line in own.items() if "given" in line}
            for node, count in counts.items():
                if count < own[node]["given"] and any(counts.values()):  # a site without GPUs has no bad nodes
                    bad[node].append(f"gpus: {way} sees {count} of {own[node]['given']}")
        speeds = {node: line["speed"] for node, line in own.items() if "speed" in line}
        for node, speed in speeds.items():
            usual = statistics.median(speeds.values())
            shown[node].append(f"{name} {speed:,.0f} {UNITS[name]}")
            if speed * SLOWER < usual:
                bad[node].append(f"{name}: {speed:,.0f} instead of {usual:,.0f} {UNITS[name]}")

    met = {pair: {"speed": 0} for meetings in pairs(nodes) for pair in meetings}
    met |= {tuple(line["pair"]): line for line in found if "pair" in line and "speed" in line}
    best = {node: max((line["speed"] for pair, line in met.items() if node in pair), default=0) for node in nodes}
    usual = statistics.median(best.values())
    trouble = {}
    for pair, line in met.items():
        if not line["speed"]:
            trouble[pair] = "no answer"
        elif line["speed"] * SLOWER < usual:
            trouble[pair] = f"{line['speed']:,.0f} instead of {usual:,.0f} MB/s"
        elif abs(line["clock"]) > CLOCK:
            trouble[pair] = f"clocks {abs(line['clock']):.0f} s apart"
    # A bad node is in trouble with all others, which are in trouble only with it: take out the worst until none is left
    while left := [pair for pair in trouble if not any(bad[node] for node in pair)]:
        counts = Counter(node for pair in left for node in pair)
        worst = max(nodes, key=lambda node: (counts[node], nodes.index(node)))
        reasons = [f"{trouble[pair]} with {pair[1 - pair.index(worst)]}" for pair in left if worst in pair]
        bad[worst].append(f"network: {', '.join(reasons)}")

    for node in nodes:
        if best[node]:
            shown[node].append(f"network {best[node]:,.0f} MB/s")
        line = f"bad: {'; '.join(bad[node])}" if bad[node] else f"ok: {', '.join(shown[node])}"
        print(f"{node} {line}", file=sys.stderr)
    if all(bad.values()) or (met and not usual):
        sys.exit("error: no node passed: is a check in preflight.py wrong for this site?")
    for node in nodes:
        print(node, "bad" if bad[node] else "ok")
        if bad[node]:
            reason = f"job {os.environ.get('SLURM_JOB_ID')}: {'; '.join(bad[node])}".replace('"', "'")
            print("Send this line to your site's staff, who alone may run it:", file=sys.stderr)
            print(f'scontrol update NodeName={node} State=DRAIN Reason="{reason}"', file=sys.stderr)


def main():
    task, *nodes = sys.argv[1:] or ["alone", os.uname().nodename]
    if task == "judge":
        judge(nodes, [json.loads(line) for line in sys.stdin])
    elif task == "check":
        for found in check(nodes):
            print(json.dumps(found), flush=True)  # now: this process may not live to the end
    else:
        judge(nodes, [*check(nodes)])


if __name__ == "__main__":
    main()
