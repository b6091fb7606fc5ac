"""Each layout writes a checkpoint and each other one reads it: what the benchmarks of checkpoints share."""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Callable, Collection

from helpers.program import options_of, write
from measurements import Configuration, read_measurement


def options(said: str, result: str) -> argparse.Namespace:
    """Read the options of such a benchmark, and let no process start threads.

    Args:
        said: What the program says of itself.
        result: Name of its result: without the file, all pairs are measured anew.
    """
    os.environ["OMP_NUM_THREADS"] = "1"
    return options_of(said, result, only="")


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
        rows = [
            Configuration(each, {"written_by": each.replace("_", " ")}, own) for each, own in samples.items() if own
        ]
        said = parameters | {"difference": "largest absolute, of a loss and of a parameter"}
        write(chosen.output, rows, versions=versions, parameters=said)
