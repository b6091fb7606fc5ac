"""Compare the runs of train.py: the time of an epoch, speed-up and efficiency on 1, 4, 8 or more ranks.

    python benchmark.py --output_dir outputs
    python benchmark.py --output_dir outputs single_gpu multi_gpu

Prints a table, and writes all samples to outputs/benchmark.json and a picture to outputs/benchmark.png.
Each job counts once: with the median of its epochs after the first, which warms up.
It compares the most configurations that differ only in nodes and GPUs, and says what it leaves out.
Needs matplotlib, and no GPU.
"""

import argparse
import json
import sys
from pathlib import Path
from statistics import median

from matplotlib.figure import Figure


def leave_out(reason):
    print(f"left out: {reason}", file=sys.stderr)


def read(path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as problem:
        raise ValueError(f"{path} is not as train.py writes it: {problem}") from None


def read_runs(folder):
    """Read the folder of one configuration, which holds a folder for each job."""
    settings = read(folder / "configuration.json")
    nodes, devices = settings.pop("nodes"), settings.pop("devices")
    jobs = {}
    for job in sorted(path for path in folder.iterdir() if path.is_dir()):
        path = job / "epoch_seconds.json"
        epochs = read(path) if path.exists() else []
        if len(epochs) > 1:
            jobs[job.name] = epochs
        else:
            leave_out(f"{folder.name}/{job.name} has not ended, or has only one epoch")
    run = {"name": folder.name, "nodes": nodes, "devices": devices, "ranks": nodes * devices, "settings": settings}
    return run | {"epoch_s": [median(epochs[1:]) for epochs in jobs.values()], "epochs_of_jobs": jobs}


def comparable(runs):
    """Return the largest group of runs with the same settings, in the order of their ranks."""
    groups = [[run for run in runs if run["settings"] == one["settings"]] for one in runs]
    first, *_ = max(groups, key=lambda group: (len(group), group[0]["settings"]["epochs"]))
    chosen = {}
    for run in runs:
        here, there, ranks = run["settings"], first["settings"], run["ranks"]
        differing = [name for name in here | there if here.get(name) != there.get(name)]
        if differing:
            ran, others = (", ".join(f"{name} {of.get(name)}" for name in differing) for of in (here, there))
            leave_out(f"{run['name']} ran with {ran}, and {first['name']} with {others}")
        elif ranks in chosen:
            leave_out(f"{run['name']} has as many ranks as {chosen[ranks]['name']}")
        else:
            chosen[ranks] = run
    return [chosen[ranks] for ranks in sorted(chosen)]


def show(runs):
    """Print the table; where a configuration has several jobs, with the fastest and the slowest."""
    rows = [["configuration", "nodes x GPUs", "ranks", "jobs", "epoch (s)", "speed-up", "efficiency"]]
    for run in runs:
        jobs, time = run["epoch_s"], f"{median(run['epoch_s']):.3g}"
        time += f" [{min(jobs):.3g}, {max(jobs):.3g}]" if len(jobs) > 1 else ""
        layout, ratios = f"{run['nodes']} x {run['devices']}", [f"{run['speed-up']:.2f}", f"{run['efficiency']:.0%}"]
        rows.append([run["name"], layout, str(run["ranks"]), str(len(jobs)), time, *ratios])
    first, *others = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *cells in rows:
        print(name.ljust(first), *map(str.rjust, cells, others), sep="  ")
    print(f"\nTimes: the median job [fastest, slowest]. Speed-up and efficiency: compared with {runs[0]['name']}.")
    if few := [run["name"] for run in runs if len(run["epoch_s"]) < 10]:
        print(f"Fewer than 10 jobs of {', '.join(few)}: take these rows as a hint.")
    print("In all runs:", ", ".join(f"{name} {value}" for name, value in runs[0]["settings"].items()))


def draw(path, runs):
    """Draw speed-up and efficiency, with bars from the slowest to the fastest job."""
    figure = Figure(figsize=(7, 3.2), layout="constrained")
    ranks = [run["ranks"] for run in runs]
    for axes, name in zip(figure.subplots(1, 2), ("speed-up", "efficiency"), strict=True):
        ideal = [run["ranks"] / ranks[0] if name == "speed-up" else 1 for run in runs]
        below = [run[name] * (1 - median(run["epoch_s"]) / max(run["epoch_s"])) for run in runs]
        above = [run[name] * (median(run["epoch_s"]) / min(run["epoch_s"]) - 1) for run in runs]
        axes.plot(ranks, ideal, "--", color="gray", label="ideal")
        axes.errorbar(ranks, [run[name] for run in runs], (below, above), marker="o", capsize=4, label="measured")
        axes.set(xlabel="ranks", ylabel=name, xticks=ranks, ylim=(0, None))
        axes.legend()
    figure.savefig(path, dpi=150)


def main():
    parser = argparse.ArgumentParser(description="Compare the runs that train.py left.")
    parser.add_argument("--output_dir", type=Path, required=True, help="the folder of all configurations: outputs")
    parser.add_argument("names", nargs="*", metavar="CONFIGURATION", help="those to compare; by default all")
    options = parser.parse_args()
    folder = options.output_dir
    known = {path.parent.name: path.parent for path in sorted(folder.glob("*/configuration.json"))}
    if not known:
        parser.error(f"{folder} holds nothing of train.py, such as single_gpu/configuration.json: give outputs")
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"{folder} has no {unknown[0]}; it has {', '.join(known)}")
    try:
        runs = [read_runs(known[name]) for name in options.names or known]
    except (OSError, ValueError) as problem:
        parser.error(problem)
    runs = [run for run in runs if run["epoch_s"]]
    if not runs:
        parser.error(f"no job below {folder} has ended after two epochs or more; run one: sbatch single_gpu.sbatch")
    runs = comparable(runs)
    for run in runs:
        run["speed-up"] = median(runs[0]["epoch_s"]) / median(run["epoch_s"])
        run["efficiency"] = run["speed-up"] * runs[0]["ranks"] / run["ranks"]
    show(runs)
    (folder / "benchmark.json").write_text(json.dumps(runs, indent=1) + "\n", encoding="utf-8")
    draw(folder / "benchmark.png", runs)


if __name__ == "__main__":
    main()
