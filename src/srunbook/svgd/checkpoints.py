"""The state of a run, and its checkpoints, which Orbax writes: the newest two steps.

The state is the particles and the optimizer's arrays, some of which have a row for each particle. It is saved whole and
without the rows that only fill up, so any other layout can continue it.
"""

from __future__ import annotations

# mypy: disable-error-code="no-untyped-call"
import hashlib
import json
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax  # type: ignore[import-untyped]
from jax import Array
from jax.experimental import multihost_utils
from orbax.checkpoint import v1 as ocp

from srunbook.svgd.devices import Layout, to_host
from srunbook.svgd.results import SVGDError

KEPT = 2
"""How many steps are kept; the older one is needed if the newest turns out to be damaged."""

RUN = "run"
"""Name of the array with the description of the run."""

CHECKSUM = "sha256"
"""Name of the array with the checksum of all others: Orbax reads a large array with a changed byte without an error."""


def place_state(optimizer: optax.GradientTransformation, layout: Layout, arrays: dict[str, Any]) -> tuple[Array, Any]:
    """Place what `fetch_state` gave on the devices, or only `particles`, shape (n, d), with a new optimizer state.

    Returns:
        The particles, shape (padded, d), and the optimizer's state.
    """
    particles = layout.place(arrays["particles"])
    shape = jax.ShapeDtypeStruct(particles.shape, particles.dtype)
    like, tree = jax.tree.flatten(jax.eval_shape(optimizer.init, shape))
    by_row = _by_row(optimizer, particles)
    if len(arrays) == 1:
        shardings = jax.tree.unflatten(tree, [layout.sharding(by_row=wide) for wide in by_row])
        return particles, jax.jit(optimizer.init, out_shardings=shardings)(particles)
    leaves = [
        layout.place(np.asarray(arrays[f"optimizer.{number}"], leaf.dtype), by_row=wide)
        for number, (leaf, wide) in enumerate(zip(like, by_row, strict=True))
    ]
    return particles, jax.tree.unflatten(tree, leaves)


def fetch_state(
    optimizer: optax.GradientTransformation, layout: Layout, state: tuple[Array, Any]
) -> dict[str, np.ndarray[Any, Any]]:
    """Fetch `particles`, shape (n, d), and `optimizer.0`, `optimizer.1`, ...; all processes call this."""
    particles, opt_state = state
    arrays = {"particles": to_host(particles)[: layout.n]}
    by_row = _by_row(optimizer, particles)
    for number, (leaf, wide) in enumerate(zip(jax.tree.leaves(opt_state), by_row, strict=True)):
        arrays[f"optimizer.{number}"] = to_host(leaf)[: layout.n] if wide else to_host(leaf)
    return arrays


def _by_row(optimizer: optax.GradientTransformation, particles: Array) -> list[bool]:
    """Return which arrays of the optimizer have a row for each particle: those that grow with their number."""

    def shapes(rows: int) -> list[tuple[int, ...]]:
        like = jax.ShapeDtypeStruct((rows, *particles.shape[1:]), particles.dtype)
        return [leaf.shape for leaf in jax.tree.leaves(jax.eval_shape(optimizer.init, like))]

    return [few != more for few, more in zip(shapes(3), shapes(5), strict=True)]


def saved_steps(directory: str | os.PathLike[str]) -> list[int]:
    """Return the steps of the checkpoints in a folder, oldest first. Orbax gives unfinished checkpoints other names."""
    return sorted(int(path.name) for path in Path(directory).glob("*/") if path.name.isdigit())


def save(directory: str | os.PathLike[str], step: int, arrays: dict[str, Any], run: dict[str, Any]) -> None:
    """Write a step, and delete all but the newest two; all processes call this, with the same arrays.

    `run` identifies the run with plain values by name: number of particles, dimension and so on.
    """
    folder = Path(directory).absolute()
    arrays = {**arrays, RUN: np.frombuffer(json.dumps(run).encode(), np.uint8)}
    if jax.process_index() == 0:  # one that could not be read
        shutil.rmtree(folder / str(step), ignore_errors=True)
    try:  # with overwrite=True, a process that looks after process 0 has deleted the old one waits elsewhere, for ever
        ocp.save(folder / str(step), {**arrays, CHECKSUM: _checksum(arrays)})
    except Exception as error:  # Orbax raises whatever its storage meets
        why = "make room there (or is another run saving in it?), then start again"
        raise SVGDError(f"cannot save in {folder}: {_reason(error)}; {why}") from None
    if jax.process_index() == 0:
        for old in saved_steps(folder)[:-KEPT]:
            shutil.rmtree(folder / str(old))


def restore(directory: str | os.PathLike[str], run: dict[str, Any], n_steps: int) -> tuple[int, dict[str, Any]] | None:
    """Return the newest step that can be read, and its arrays; None in an empty folder. All processes call this.

    Raises:
        SVGDError: They are those of another run, of more steps than `n_steps`, or all of them are damaged.
    """
    alone = ocp.Context()
    alone.multiprocessing.active_processes = {jax.process_index()}  # or others wait for one that cannot read it
    folder = Path(directory).absolute()
    seen = multihost_utils.process_allgather(np.array([*saved_steps(folder)[::-1], -1, -1][:KEPT]))  # by each process
    for step in [int(step) for step in seen[0] if step >= 0 and (seen == step).any(axis=1).all()]:
        arrays, saved, reason = {}, {}, "another process cannot read it"
        try:
            with alone:
                arrays = ocp.load(folder / str(step))
            if not np.array_equal(arrays.pop(CHECKSUM), _checksum(arrays)):
                raise ValueError("its checksum differs")
            saved = json.loads(arrays.pop(RUN).tobytes())
        except Exception as error:  # Orbax raises whatever its storage meets in a damaged file
            arrays, reason = {}, _reason(error)
        if not multihost_utils.process_allgather(np.array(bool(arrays))).all():
            warnings.warn(f"{folder / str(step)} is damaged: {reason}", stacklevel=5)
            continue
        others = [f"{name} {saved[name]}, not {new}" for name, new in run.items() if saved.get(name, new) != new]
        if others:
            raise SVGDError(f"{folder} has a run with {'; '.join(others)}: give what that had, or another directory")
        if step > n_steps:
            raise SVGDError(
                f"{folder} has step {step} of this run already, which is more than n_steps={n_steps}; "
                f"give n_steps={step} or more, or another directory"
            )
        return step, arrays
    if (seen >= 0).any():
        raise SVGDError(f"no checkpoint in {folder} can be read: delete it to start over")
    return None


def _reason(error: Exception) -> str:
    """Return the beginning of an error's message."""
    return str(error).partition("\n")[0][:200] or type(error).__name__


def _checksum(arrays: dict[str, Any]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the SHA-256 of arrays and their names."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(name.encode())
        digest.update(np.asarray(arrays[name]).tobytes())
    return np.frombuffer(digest.digest(), np.uint8)
