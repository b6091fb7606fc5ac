"""Show where the time of a step goes, from the traces of all ranks of a job.

    python time_parts.py trace-17

The folder holds a trace for each rank: rank-0.json from torch.profiler, or rank-0/ from jax.profiler with
create_perfetto_trace=True. The program prints a table, names the largest cost, and draws parts.png into the folder.
"""

import gzip
import json
import math
import re
import sys
from collections import Counter
from pathlib import Path

PARTS = {"compute": "#0b63a5", "transfer": "#a3480c", "waiting": "#1a7344", "data": "#8b3fa0", "other": "#a6a6a6"}
COLLECTIVE = re.compile(r"nccl|gloo:|all-reduce|reduce-scatter|all-gather|all-to-all|collective-permute", re.IGNORECASE)
BYTES = {"double": 8, "long": 8, "float": 4, "int": 4, "c10::BFloat16": 2, "c10::Half": 2}


def merged(intervals):
    """Join intervals that overlap."""
    joined = []
    for start, end in sorted(intervals):
        if joined and start <= joined[-1][1]:
            joined[-1][1] = max(end, joined[-1][1])
        else:
            joined.append([start, end])
    return joined


def without(intervals, taken):
    """Return what the merged intervals leave after those taken, merged too."""
    left, at = [], 0
    for start, end in intervals:
        while at < len(taken) and taken[at][1] <= start:
            at += 1
        for first, last in taken[at:]:
            if first >= end:
                break
            if first > start:
                left.append([start, first])
            start = max(start, last)
        if start < end:
            left.append([start, end])
    return left


def read(path):
    """Return a rank's steps, times of computing and of loading data, its collectives, and what they send."""
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
        events = sorted((e for e in json.load(file)["traceEvents"] if e.get("ph") == "X"), key=lambda e: e["ts"])
    on_gpu = any(event.get("cat") == "kernel" for event in events)
    computing = ("kernel", "gpu_memcpy", "gpu_memset") if on_gpu else ("cpu_op",)
    steps, compute, data, collectives, sent = [], [], [], [], []
    for event in events:
        name, kind, arguments = event["name"], event.get("cat"), event.get("args", {})
        if kind == "gpu_user_annotation":
            continue  # repeats the program's own marks with the GPU's times
        interval = [event["ts"], event["ts"] + event["dur"]]
        if name.startswith("ProfilerStep#") or "step_num" in arguments:
            steps.append(interval)
        elif name == "data" or name.startswith("enumerate(DataLoader)"):
            data.append(interval)
        elif COLLECTIVE.search(name):
            if kind == "kernel" or (not on_gpu and (kind == "user_annotation" or "hlo_op" in arguments)):
                collectives.append(interval)
            if kind == "user_annotation":
                sizes = zip(arguments.get("Input Dims", ()), arguments.get("Input type", ()), strict=True)
                sent.append(sum(math.prod(shape) * BYTES.get(type_, 0) for shape, type_ in sizes))
        elif (kind in computing and not name.startswith("c10d::")) or "hlo_op" in arguments:
            compute.append(interval)
    if not steps:
        raise ValueError(f"{path} contains no steps: call profiler.step() after each, or use StepTraceAnnotation")
    data, compute = merged(data), merged(compute)
    return {
        "steps": steps,
        "compute": compute if on_gpu else without(compute, data),
        "data": data,
        "collectives": collectives,
        "sent": sent,
    }


def parts_of(rank, shortest):
    """Divide the milliseconds of a rank's step: each moment counts for the first part that it belongs to."""
    ends = [end for _, end in rank["collectives"]]
    transfer = [[end - least, end] for end, least in zip(ends, shortest, strict=True)]
    waiting = [[start, end - least] for (start, end), least in zip(rank["collectives"], shortest, strict=True)]
    left = merged(rank["steps"])
    parts = {}
    for part, intervals in zip(PARTS, (rank["compute"], transfer, waiting, rank["data"]), strict=False):
        rest = without(left, merged(intervals))
        parts[part], left = length(left) - length(rest), rest
    parts["other"] = length(left)
    return {part: time / 1000 / len(rank["steps"]) for part, time in parts.items()}


def length(intervals):
    return sum(end - start for start, end in intervals)


def analyse(folder):
    """Return the parts of each rank's step, and how many collectives of each size rank 0 has in a step."""
    named = [(re.fullmatch(r"(?:trace_)?rank[-_](\d+)(?:\.json)?", path.name), path) for path in folder.iterdir()]
    paths = {int(name[1]): path for name, path in named if name}
    if not paths:
        raise ValueError(f"{folder} contains no rank-0.json and no rank-0/")
    ranks = {}
    for number in sorted(paths):
        inside = sorted(paths[number].rglob("perfetto_trace.json.gz"))  # from JAX, the last one is the newest
        ranks[number] = read(inside[-1] if inside else paths[number])
    counts = {number: len(rank["collectives"]) for number, rank in ranks.items()}
    if len(set(counts.values())) != 1:
        raise ValueError(f"the ranks have different numbers of collectives, so they can't be compared: {counts}")
    durations = [[end - start for start, end in rank["collectives"]] for rank in ranks.values()]
    shortest = [min(column) for column in zip(*durations, strict=True)]
    first = next(iter(ranks.values()))
    sizes = Counter(first["sent"] or [None] * len(first["collectives"]))
    per_step = {size: sizes[size] / len(first["steps"]) for size in sorted(sizes, key=lambda size: -(size or 0))}
    return {number: parts_of(rank, shortest) for number, rank in ranks.items()}, per_step


def verdict(ranks, messages):
    """Name the part that costs most, if less than four fifths of a step is computing."""
    mean = {part: sum(parts[part] for parts in ranks.values()) / len(ranks) for part in PARTS}
    share = {part: time / sum(mean.values()) for part, time in mean.items()}
    if share["compute"] >= 0.8:
        return f"computing takes {share['compute']:.0%} of a step"
    share["waiting"] = max(parts["waiting"] / sum(parts.values()) for parts in ranks.values())  # not the slow rank's
    largest = max(list(PARTS)[1:], key=share.get)
    slowest = min(ranks, key=lambda number: ranks[number]["waiting"])
    hints = {
        "waiting": f"; rank {slowest} waits least: the others wait for it",
        "transfer": f" in {messages:.0f} {'collective' if round(messages) == 1 else 'collectives'}",
    }
    name = "waiting up to" if largest == "waiting" else largest
    return f"computing takes {share['compute']:.0%} of a step, {name} {share[largest]:.0%}{hints.get(largest, '')}"


def draw(axes, ranks):
    """Draw a bar for each rank."""
    left = [0.0] * len(ranks)
    for part, colour in PARTS.items():
        widths = [parts[part] for parts in ranks.values()]
        axes.barh([f"rank {number}" for number in ranks], widths, left=left, label=part, color=colour)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("ms of a step")


def main():
    if len(sys.argv) != 2:
        print(f"error: give the folder of the traces, as in: {sys.argv[0]} trace-17", file=sys.stderr)
        return 2
    if not Path(sys.argv[1]).is_dir():
        print(f"error: no folder {sys.argv[1]} here: run this where you submitted the job", file=sys.stderr)
        return 2
    folder = Path(sys.argv[1])
    try:
        ranks, sizes = analyse(folder)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("rank" + "".join(f"{part:>10}" for part in PARTS) + "      step   (ms)")
    for number, parts in ranks.items():
        print(f"{number:4}" + "".join(f"{time:10.2f}" for time in [*parts.values(), sum(parts.values())]))
    for size, count in sizes.items():
        print(f"collectives in a step: {count:g}" + (f" of {size:,} bytes" if size else ""))
    print(f"where the time goes: {verdict(ranks, sum(sizes.values()))}")

    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 1.4 + 0.4 * len(ranks)), layout="constrained")
    axes = figure.subplots()
    draw(axes, ranks)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=len(PARTS), frameon=False)
    figure.savefig(folder / "parts.png", dpi=150)
    return 0


if __name__ == "__main__":
    sys.exit(main())
