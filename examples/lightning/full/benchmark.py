"""Compare the runs of train.py: the time of an epoch, speed-up and efficiency on 1, 4, 8 or more ranks.

    python benchmark.py --output_dir outputs
    python benchmark.py --output_dir outputs single_gpu multi_gpu

Prints a table, and writes all samples to outputs/benchmark.json and a picture to outputs/benchmark.png.
Each job is a repeat. Its sample is the median of its epochs without the first, which warms up.
Without names it compares the most configurations that differ only in their ranks, and names those it leaves out.
Needs srunbook and matplotlib, and no GPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from srunbook.measurements import Configuration, Interval, Measurement, Table, plot, strong, write_measurement


@dataclass(frozen=True)
class Runs:
    """The jobs of one configuration."""

    name: str
    nodes: int
    devices: int  # of each node
    settings: dict[str, Any]
    seconds: list[float]  # of an epoch: one for each job
    epochs: int  # that were timed, in all jobs
    left_out: list[str]

    @property
    def ranks(self) -> int:
        return self.nodes * self.devices


# Reading ---------------------------------------------------------------------------


def read_json(path: Path) -> Any:
    """Read a file that train.py has written."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise ValueError(f"{path} is not as train.py writes it: {problem}") from None


def is_count(value: Any) -> bool:
    """Return whether a value is a whole number from 1."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def read_configuration(folder: Path) -> Runs:
    """Read the folder of one configuration, with one folder for each job."""
    path = folder / "configuration.json"
    settings = read_json(path)
    if not (isinstance(settings, dict) and is_count(settings.get("nodes")) and is_count(settings.get("devices"))):
        raise ValueError(f'{path} is not as train.py writes it: it begins with {{"nodes": 2, "devices": 4}}')
    nodes, devices = settings.pop("nodes"), settings.pop("devices")
    seconds, timed, left_out = [], 0, []
    for job in sorted(path for path in folder.iterdir() if path.is_dir()):
        path = job / "epoch_seconds.json"
        if not path.exists():
            left_out.append(f"{folder.name}/{job.name} has not ended")
            continue
        epochs = read_json(path)
        if not (isinstance(epochs, list) and all(isinstance(one, float) and 0 < one < 1e9 for one in epochs)):
            raise ValueError(f"{path} is not as train.py writes it: it holds seconds, such as [1.2, 1.1]")
        if len(epochs) < 2:
            left_out.append(f"{folder.name}/{job.name} has {len(epochs)} epochs, and the first warms up")
            continue
        seconds.append(statistics.median(epochs[1:]))
        timed += len(epochs) - 1
    return Runs(folder.name, nodes, devices, settings, seconds, timed, left_out)


def read_runs(folder: Path, names: Sequence[str]) -> list[Runs]:
    """Read the named configurations, or all that can be compared.

    Raises:
        ValueError: There is nothing to compare, or the named ones cannot be compared.
    """
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}; the job scripts make it where you submit them: outputs")
    if (folder / "configuration.json").exists():
        above = folder.resolve().parent
        raise ValueError(f"{folder} holds one configuration; give the folder above: --output_dir={above}")
    known = {path.parent.name: path.parent for path in sorted(folder.glob("*/configuration.json"))}
    if not known:
        example = folder / "single_gpu" / "configuration.json"
        raise ValueError(f"{folder} holds nothing that train.py wrote, such as {example}; run single_gpu.sbatch first")
    for name in names:
        if name not in known:
            raise ValueError(f"{folder} has no {name}; it has {', '.join(known)}")
    runs = [read_configuration(known[name]) for name in dict.fromkeys(names or known)]
    for text in (text for run in runs for text in run.left_out):
        print(f"left out: {text}", file=sys.stderr)
    runs = [run for run in runs if run.seconds]
    if not runs:
        raise ValueError(f"no job below {folder} has ended after 2 epochs or more; run one: sbatch single_gpu.sbatch")
    chosen, reasons = comparable(runs)
    if names and reasons:
        again = f"python benchmark.py --output_dir {folder} {' '.join(run.name for run in chosen)}"
        raise ValueError(f"{reasons[0]}; name those to compare: {again}")
    for text in reasons:
        print(f"left out: {text}", file=sys.stderr)
    return sorted(chosen, key=lambda run: run.ranks)


def comparable(runs: Sequence[Runs]) -> tuple[list[Runs], list[str]]:
    """Return the most runs that differ only in their ranks, and the reason to leave out each other one."""
    groups = [[one for one in runs if one.settings == run.settings] for run in runs]
    alike = max(groups, key=lambda group: (len(group), sum(run.epochs for run in group)))
    chosen: dict[int, Runs] = {}
    reasons = []
    for run in runs:
        settings, others = run.settings, alike[0].settings
        differing = [name for name in {**others, **settings} if settings.get(name) != others.get(name)]
        if differing:
            here, there = (", ".join(f"{name} {of.get(name)}" for name in differing) for of in (settings, others))
            reasons.append(f"{run.name} ran with {here}, and {alike[0].name} with {there}")
        elif run.ranks in chosen:
            count = f"{run.ranks} rank{'s' if run.ranks > 1 else ''}"
            reasons.append(f"{run.name} ran on {count}, as {chosen[run.ranks].name} did")
        else:
            chosen[run.ranks] = run
    return [*chosen.values()], reasons


# Comparing -------------------------------------------------------------------------


def measurement(folder: Path, runs: Sequence[Runs]) -> Measurement:
    """Return all samples in the form that srunbook reads."""
    configurations = [
        Configuration(
            run.name,
            {"ranks": run.ranks, "nodes": run.nodes, "devices": run.devices},
            {"epoch_s": run.seconds},
        )
        for run in runs
    ]
    return Measurement(
        command=f"python benchmark.py --output_dir {folder}",
        commit="unknown",
        date=datetime.now(UTC).date().isoformat(),
        machine={},
        versions={},
        configurations=configurations,
        parameters={**runs[0].settings, "warm_up_epochs": 1},
    )


def show(runs: Sequence[Runs], table: Table) -> None:
    """Print the table and its notes."""

    def cell(interval: Interval, sure: bool, form: str) -> str:
        ends = f" [{interval.low:{form}}, {interval.high:{form}}]" if sure else ""
        return f"{interval.value:{form}}{ends}"

    lines = [["configuration", "nodes x GPUs", "ranks", "jobs", "epoch (s)", "speed-up", "efficiency"]]
    for run, row in zip(runs, table.rows, strict=True):
        sure = row.repeats > 1
        both = sure and table.base.repeats > 1 and row is not table.base
        times = [cell(row.time, sure, ".3g"), cell(row.speedup, both, ".2f"), cell(row.efficiency, both, ".0%")]
        lines.append([run.name, f"{run.nodes} x {run.devices}", str(run.ranks), str(row.repeats), *times])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        rest = [text.rjust(width) for text, width in zip(line[1:], widths[1:], strict=True)]
        print("  ".join([line[0].ljust(widths[0]), *rest]))
    print("", *table.notes(), sep="\n")
    print("In all runs:", ", ".join(f"{name} {value}" for name, value in runs[0].settings.items()))


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the runs that train.py left.")
    parser.add_argument("--output_dir", type=Path, required=True, help="the folder of all configurations: outputs")
    parser.add_argument(
        "names", nargs="*", metavar="CONFIGURATION", help="those to compare; by default all that can be"
    )
    options = parser.parse_args()
    folder: Path = options.output_dir
    try:
        runs = read_runs(folder, options.names)
        samples = measurement(folder, runs)
        table = strong(samples, over="ranks", quantity="epoch_s")
        write_measurement(folder / "benchmark.json", samples)
        plot(table, folder / "benchmark.png")
    except (OSError, ValueError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    show(runs, table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
