"""Each layout writes a checkpoint and each other one reads it: what the benchmarks of checkpoints share."""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Callable, Collection
from pathlib import Path

from helpers.typed import typed

from srunbook.measurements import Configuration, Measurement, read_measurement, write_measurement


def options(said: str, result: Path) -> argparse.Namespace:
    """Read the options of such a benchmark, and let no process start threads.

    Args:
        said: What `--help` says first.
        result: The file that is written without `--output`.
    """
    parser = argparse.ArgumentParser(description=said.splitlines()[0])
    parser.add_argument("--output", type=Path, default=result, help="delete it to measure all pairs anew")
    parser.add_argument("--only", default="", help="a layout that writes or reads in all pairs to measure")
    os.environ["OMP_NUM_THREADS"] = "1"
    return parser.parse_args()


def measure(
    chosen: argparse.Namespace,
    layouts: Collection[str],
    difference: Callable[[str, str], float],
    *,
    versions: dict[str, str],
    parameters: dict[str, str | int],
) -> None:
    """Measure every pair that the file does not have; write it after each, a row for each layout that writes.

    Args:
        chosen: What `options` returned.
        layouts: Names of the layouts, in the order of the rows.
        difference: Returns how far a training is from the unbroken one, from the names of the layout that writes and
            of the one that reads.
        versions: What the file says of packages.
        parameters: What it says of the trainings.
    """
    kept = read_measurement(chosen.output).configurations if chosen.output.exists() else []
    samples: dict[str, dict[str, list[float]]] = {writer: {} for writer in layouts}
    samples |= {each.name: dict(each.samples) for each in kept}
    for reader, writer in itertools.product(layouts, repeat=2):
        if reader in samples[writer] or chosen.only not in ("", writer, reader):
            continue
        samples[writer][reader] = [difference(writer, reader)]
        print(writer, reader, samples[writer][reader], flush=True)
        rows = [
            Configuration(each, {"written_by": each.replace("_", " ")}, own) for each, own in samples.items() if own
        ]
        said = parameters | {"difference": "largest absolute, of a loss and of a parameter"}
        write_measurement(chosen.output, Measurement.taken_now(typed(), rows, versions=versions, parameters=said))
