"""Print a table of speed-up and efficiency from the results of scaling_strong.sbatch or scaling_weak.sbatch.

    python scaling_summary.py results/scaling_strong_17

It reads `nodes-<N>-repeat-<R>/metrics.csv`, and writes all samples to scaling.json in the same folder.
The first epoch of each run warms up and does not count.
"""

from __future__ import annotations

import csv
import json
import re
import statistics
import sys
from pathlib import Path


def throughputs(folder: Path) -> dict[int, list[float]]:
    """Return samples per second of each run by number of nodes: medians over the epochs after the first."""
    found: dict[int, list[float]] = {}
    for path in sorted(folder.glob("nodes-*-repeat-*/metrics.csv")):
        nodes = int(re.findall(r"nodes-(\d+)-", path.parent.name)[0])
        with path.open(encoding="utf-8") as file:
            rows = [float(row["throughput_samples_per_sec"]) for row in csv.DictReader(file)][1:]
        if rows:
            found.setdefault(nodes, []).append(statistics.median(rows))
    return dict(sorted(found.items()))


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) == 2 else Path()
    runs = throughputs(folder) if len(sys.argv) == 2 else {}
    if not runs:
        print(
            "error: give a folder with nodes-1-repeat-1/metrics.csv of two epochs or more, "
            f"as in: {sys.argv[0]} results/scaling_strong_17",
            file=sys.stderr,
        )
        return 2
    base = min(runs)
    medians = {nodes: statistics.median(samples) for nodes, samples in runs.items()}
    print("nodes  runs       median  smallest   largest  speed-up  efficiency   (samples/s)")
    for nodes, samples in runs.items():
        speedup = medians[nodes] / medians[base]
        print(
            f"{nodes:5}  {len(samples):4}  {medians[nodes]:11.1f} {min(samples):9.1f} {max(samples):9.1f}  "
            f"{speedup:8.2f}  {speedup * base / nodes:10.0%}"
        )
    content = {"unit": "samples/s", "base_nodes": base, "samples": {str(nodes): runs[nodes] for nodes in runs}}
    (folder / "scaling.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
