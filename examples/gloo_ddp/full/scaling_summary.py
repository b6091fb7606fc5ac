"""Print a table of speed-up and efficiency from the results of scaling_strong.sbatch or scaling_weak.sbatch.

    python scaling_summary.py results/scaling_strong_17

It reads `nodes-<N>-repeat-<R>/metrics.csv`, and writes all samples to scaling.json in the same folder.
The first epoch of each run warms up and does not count.
"""

import csv
import json
import re
import sys
from pathlib import Path
from statistics import median


def throughputs(folder):
    """Return samples per second of each run by number of nodes: medians over the epochs after the first."""
    found = {}
    for path in sorted(folder.glob("nodes-*-repeat-*/metrics.csv")):
        nodes = int(re.findall(r"nodes-(\d+)-", path.parent.name)[0])
        with path.open(encoding="utf-8") as file:
            rows = [float(row["throughput_samples_per_sec"]) for row in csv.DictReader(file)][1:]
        if rows:
            found.setdefault(nodes, []).append(median(rows))
    return dict(sorted(found.items()))


def main():
    runs = throughputs(Path(sys.argv[1])) if len(sys.argv) == 2 else {}
    if not runs:
        wanted = "give a folder with nodes-1-repeat-1/metrics.csv of two epochs or more"
        print(f"error: {wanted}, as in: {sys.argv[0]} results/scaling_strong_17", file=sys.stderr)
        return 2
    base = min(runs)
    print("nodes  runs       median  smallest   largest  speed-up  efficiency   (samples/s)")
    for nodes, samples in runs.items():
        speedup = median(samples) / median(runs[base])
        print(
            f"{nodes:5}  {len(samples):4}  {median(samples):11.1f} {min(samples):9.1f} {max(samples):9.1f}  "
            f"{speedup:8.2f}  {speedup * base / nodes:10.0%}"
        )
    content = {"unit": "samples/s", "base_nodes": base, "samples": runs}
    Path(sys.argv[1], "scaling.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
