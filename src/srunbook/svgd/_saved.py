"""Checkpoints of a run, by Orbax: the newest two steps; a step counts once all of it is on the disk."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from orbax.checkpoint import v1 as ocp

from srunbook.svgd._result import SVGDError

KEPT = 2
"""How many steps stay; the older one is for when the newest turns out to be damaged."""

RUN = "run"
"""Name of the array with the description of the run."""

CHECKSUM = "sha256"
"""Name of the array with the checksum of all others: Orbax reads a large array with a changed byte without an error."""


def saved_steps(directory: str | os.PathLike[str]) -> list[int]:
    """Return the steps of the checkpoints in a folder, oldest first. Orbax gives unfinished ones other names."""
    return sorted(int(path.name) for path in Path(directory).glob("*") if path.name.isdigit())


def save(directory: str | os.PathLike[str], step: int, tensors: dict[str, Any], run: dict[str, Any]) -> None:
    """Write a step, and delete all but the newest two; all processes call this.

    Args:
        directory: The folder, which all processes share.
        step: The number of steps made.
        tensors: Arrays by name, whole and the same on all processes.
        run: What makes the run the run that it is, as plain values by name: number of particles, dimension and so on.
    """
    folder = Path(directory).absolute()
    tensors = {**tensors, RUN: np.frombuffer(json.dumps(run).encode(), np.uint8)}
    ocp.save(folder / str(step), {**tensors, CHECKSUM: _checksum(tensors)}, overwrite=True)
    if jax.process_index() == 0:
        for old in saved_steps(folder)[:-KEPT]:
            shutil.rmtree(folder / str(old))


def restore(directory: str | os.PathLike[str], run: dict[str, Any], n_steps: int) -> tuple[int, dict[str, Any]] | None:
    """Return the newest step that can be read, and its arrays; None in an empty folder. All processes call this.

    Raises:
        SVGDError: They are those of another run, of more steps than `n_steps`, or all of them are damaged.
    """
    folder = Path(directory).absolute()
    steps = multihost_utils.broadcast_one_to_all(np.array([-1, -1, *saved_steps(folder)][-KEPT:]))
    for step in map(int, sorted(steps[steps >= 0], reverse=True)):
        try:
            tensors = ocp.load(folder / str(step))
            if not np.array_equal(tensors.pop(CHECKSUM), _checksum(tensors)):
                raise ValueError("its checksum differs")
            saved = json.loads(tensors.pop(RUN).tobytes())
        except Exception as error:  # Orbax raises whatever its storage meets in a damaged file
            reason = str(error).partition("\n")[0][:200] or type(error).__name__
            warnings.warn(f"{folder / str(step)} is damaged: {reason}", stacklevel=5)
            continue
        others = [f"{name} {saved.get(name)}, not {value}" for name, value in run.items() if saved.get(name) != value]
        if others:
            raise SVGDError(f"{folder} has a run with {'; '.join(others)}: give what that had, or another directory")
        if step > n_steps:
            raise SVGDError(
                f"{folder} has step {step} of this run already, which is more than n_steps={n_steps}; "
                f"give n_steps={step} or more, or another directory"
            )
        return step, tensors
    if (steps >= 0).any():
        raise SVGDError(f"no checkpoint in {folder} can be read: delete it to start over")
    return None


def _checksum(tensors: dict[str, Any]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the SHA-256 of arrays and their names."""
    found = hashlib.sha256()
    for name in sorted(tensors):
        found.update(name.encode())
        found.update(np.asarray(tensors[name]).tobytes())
    return np.frombuffer(found.digest(), np.uint8)
