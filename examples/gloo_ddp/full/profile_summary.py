"""Show where the time of a step goes, from the traces that train_traffic.py --profile wrote.

    python profile_summary.py results/profile_17

It prints a table with a row for each rank, names the bottleneck, and draws profile.png into the same folder.

A rank has computed its backward pass when it hands its last gradients to the all-reduce. The all-reduce until then is
overlapped and costs nothing. The rest is exposed: the rank waits, for the network or for another rank.
"""

import json
import re
import sys
from pathlib import Path
from statistics import mean, median

# Parts of a step, one after the other; the overlapped all-reduce runs beside them
PARTS = ("data", "forward", "backward", "all-reduce exposed", "optimizer")
COLOURS = ("#8c8c8c", "#1f77b4", "#6baed6", "#d62728", "#2ca02c")
LIMIT = 1.5  # a rank is the bottleneck if it works this many times as long as the median of the others


def covered(start, end, intervals):
    """Return how long at least one of the sorted intervals runs between start and end."""
    total = 0.0
    for first, last in intervals:
        total += max(0.0, min(last, end) - max(first, start))
        start = max(start, last)
    return total


def read_trace(path):
    """Return the milliseconds of each part of a step: medians over the steps of a trace."""
    events = [event for event in json.loads(path.read_text(encoding="utf-8"))["traceEvents"] if event.get("ph") == "X"]

    def named(name):
        return sorted((event["ts"], event["ts"] + event["dur"]) for event in events if event["name"] == name)

    backwards = named("backward")
    if not backwards:
        raise ValueError(f"{path} holds no steps: train for at least 22 steps")
    reduced, handed = named("gloo:all_reduce"), [start for start, _ in named("c10d::allreduce_")]
    steps = {part: [end - start for start, end in named(part)] for part in ("data", "forward", "optimizer")}
    steps |= {"backward": [], "all-reduce exposed": [], "all-reduce overlapped": []}
    for start, end in backwards:
        ready = max((at for at in handed if start <= at < end), default=end)
        steps["backward"].append(ready - start)
        steps["all-reduce exposed"].append(end - ready)
        steps["all-reduce overlapped"].append(covered(start, ready, reduced))
    return {part: median(microseconds) / 1000 for part, microseconds in steps.items()}


def bottleneck(ranks):
    """Name what limits the speed.

    The rule: a rank that works LIMIT times as long as the median of the others; otherwise data, computing (forward,
    backward and optimizer) or communication (exposed all-reduce), whichever takes most of a step on average.
    """
    work = {rank: sum(parts[part] for part in PARTS) - parts["all-reduce exposed"] for rank, parts in ranks.items()}
    for rank, mine in work.items():
        others = [other for key, other in work.items() if key != rank]
        if others and mine > LIMIT * median(others):
            return f"rank {rank}, which works {mine / median(others):.1f} times as long as the others"
    means = {part: mean(parts[part] for parts in ranks.values()) for part in PARTS}
    groups = {
        "data": means["data"],
        "computing": means["forward"] + means["backward"] + means["optimizer"],
        "communication": means["all-reduce exposed"],
    }
    name = max(groups, key=groups.get)
    return f"{name}, {groups[name] / sum(groups.values()):.0%} of a step"


def draw(path, ranks):
    """Draw a stacked bar for each rank."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 1.2 + 0.45 * len(ranks)), layout="constrained")
    axes = figure.subplots()
    names = [f"rank {rank}" for rank in ranks]
    left = [0.0] * len(ranks)
    for part, colour in zip(PARTS, COLOURS, strict=True):
        widths = [parts[part] for parts in ranks.values()]
        axes.barh(names, widths, left=left, label=part, color=colour)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("time of a step (ms)")
    figure.legend(loc="outside upper center", ncols=len(PARTS), frameon=False, fontsize="small")
    figure.savefig(path, dpi=150)


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) == 2 else Path()
    traces = {int(re.findall(r"\d+", path.stem)[0]): path for path in folder.glob("trace_rank_*.json")}
    if len(sys.argv) != 2 or not traces:
        print(f"error: give a folder with trace_rank_0.json, as in: {sys.argv[0]} results/profile_17", file=sys.stderr)
        return 2
    try:
        ranks = {rank: read_trace(traces[rank]) for rank in sorted(traces)}
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("                                  ---- all-reduce ----")
    print("rank    data  forward  backward   exposed  overlapped  optimizer   (ms of a step)")
    order = ("data", "forward", "backward", "all-reduce exposed", "all-reduce overlapped", "optimizer")
    for rank, parts in ranks.items():
        cells = [f"{parts[part]:{width}.2f}" for part, width in zip(order, (6, 7, 8, 8, 10, 9), strict=True)]
        print(f"{rank:4}  " + "  ".join(cells))
    print(f"bottleneck: {bottleneck(ranks)}")
    draw(folder / "profile.png", ranks)
    return 0


if __name__ == "__main__":
    sys.exit(main())
