"""Compare what the processes were given: where they differ, a run would hang, or end in nonsense."""

from __future__ import annotations

import hashlib
from typing import Any

import jax
import numpy as np
from jax import Array

from srunbook.svgd._layout import to_host
from srunbook.svgd._program import Settings
from srunbook.svgd._result import Floats, SVGDError

PARTICLES = ("starts from other particles", "make them from the same seed on all processes, as in jax.random.key(0)")
KEY = ("has another key", "give the same on all processes, as in jax.random.key(0)")
DATA = ("has other data", "each process reads all rows, in the same order; it is the particles that are spread")
DENSITY = (
    "has another log density",
    "each process runs the whole program: seed what it draws, or give the data as data=",
)
"""In what the processes may differ, and what mends it."""

POINTS = 4
"""At so many of the initial particles the densities are compared."""

SAME_DENSITY = 1e-3
"""By how much they may differ, as a share of the largest: processors round in different ways."""


def agree_on_progress(
    settings: Settings, data: Any, key: Array, start: Floats, arguments: dict[str, Any], *, progress: bool
) -> bool:
    """Return what process 0 was told about progress, which decides where all of them pause.

    Args:
        settings: The settings of this process.
        data: Its data.
        key: Its random key.
        start: The particles that it starts from, shape (n, d).
        arguments: By name what else has to be the same, as values with a meaningful `repr`.
        progress: Whether it was asked for progress.

    Raises:
        SVGDError: A process was not given what process 0 was; the message names it and in what it differs.
    """
    if jax.process_count() == 1:
        return progress
    from jax.experimental import multihost_utils

    rows = [leaf for leaf in jax.tree.leaves(data) if getattr(leaf, "is_fully_addressable", True)]
    given = {
        PARTICLES: [start],
        KEY: [np.asarray(jax.random.key_data(key))],
        DATA: rows,
        **{
            (f"has another {name}", f"give {name} the same on all processes"): [
                np.frombuffer(repr(value).encode(), "u1")
            ]
            for name, value in arguments.items()
        },
    }
    digests = [*map(_digest, given.values()), np.full(8, progress, np.uint8)]
    by_process = multihost_utils.process_allgather(np.stack(digests))
    for number, difference in enumerate(given):
        column = by_process[:, number]
        _refuse(difference, [process for process, one in enumerate(column) if (one != column[0]).any()])
    values = multihost_utils.process_allgather(_densities(settings, data, start))
    near = [np.allclose(one, values[0], rtol=0, atol=SAME_DENSITY * np.abs(values).max()) for one in values]
    _refuse(DENSITY, [process for process, same in enumerate(near) if not same])
    return bool(by_process[0, -1].any())


def _densities(settings: Settings, data: Any, start: Floats) -> Floats:
    """Compute log densities of a few initial particles, shape (points,); zeros where they are not numbers."""
    target = settings.target
    rows = jax.tree.map(lambda array: array[: target.batch_size], data)
    found: Floats = to_host(jax.jit(jax.vmap(target.value, (0, None)))(start[:POINTS], rows), settings.mesh)
    return np.nan_to_num(found)


def _refuse(difference: tuple[str, str], processes: list[int]) -> None:
    """Raise an error where processes differ from process 0."""
    if processes:
        raise SVGDError(f"process {', '.join(map(str, processes))} {difference[0]} than process 0; {difference[1]}")


def _digest(arrays: list[Any]) -> np.ndarray[Any, Any]:
    """Return 8 bytes that differ where arrays do."""
    digest = hashlib.sha256()
    for array in map(np.asarray, arrays):
        digest.update(f"{array.shape} {array.dtype} ".encode() + array.tobytes())
    return np.frombuffer(digest.digest()[:8], np.uint8)
