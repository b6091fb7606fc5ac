"""Name the nodes that slow a training down, from the timings.csv of its results.

    python slow_nodes.py results/ddp_cpu_17

All ranks end each step together, so their epochs take equally long. They differ in how they spend the time: a slow
rank loads and computes throughout, and the others wait for it in the all-reduce.
"""

import csv
import sys
from pathlib import Path
from statistics import median

LIMIT = 1.5  # a rank is slow if it loads and computes this many times as long as the median of the others


def work_of_ranks(path):
    """Return the seconds of an epoch that each rank and host worked and waited: medians without the first epoch."""
    with path.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    first = min(int(row["epoch"]) for row in rows)
    later = [row for row in rows if int(row["epoch"]) > first] or rows  # the first one also warms up
    found = {}
    for row in later:
        worked, waited = found.setdefault((int(row["rank"]), row["host"]), ([], []))
        worked.append(float(row["data_load_time_sec"]) + float(row["compute_time_sec"]))
        waited.append(float(row["all_reduce_time_sec"]))
    return {rank: (median(worked), median(waited)) for rank, (worked, waited) in sorted(found.items())}


def main():
    if len(sys.argv) != 2 or not Path(sys.argv[1], "timings.csv").is_file():
        print(f"error: give a folder with a timings.csv, as in: {sys.argv[0]} results/ddp_cpu_17", file=sys.stderr)
        return 2
    ranks = work_of_ranks(Path(sys.argv[1], "timings.csv"))
    print("rank  host              works (s)  waits (s)   of each epoch")
    slow = []
    for (rank, host), (work, wait) in ranks.items():
        print(f"{rank:4}  {host:16}  {work:9.3f}  {wait:9.3f}")
        others = [other for key, (other, _) in ranks.items() if key != (rank, host)]
        if others and work > LIMIT * median(others):
            slow.append(f"slow: rank {rank} on {host}, {work / median(others):.1f} times as long as the others")
    print("\n".join(slow or [f"no rank works for more than {LIMIT} times as long as the others"]))
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
