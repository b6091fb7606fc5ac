"""The state of a run: the particles, and the optimizer's state, some of whose arrays have a row for each particle."""

from __future__ import annotations

# mypy: disable-error-code="no-untyped-call"
from typing import Any

import jax
import numpy as np
from jax import Array

from srunbook.svgd._layout import Layout, replicated, row_sharding, spread, to_host
from srunbook.svgd._program import Settings
from srunbook.svgd._result import Floats

OPT_STATE = "optimizer."
"""The names of the optimizer's arrays in a checkpoint begin so."""


def fresh_state(settings: Settings, layout: Layout, particles: Floats) -> tuple[Array, Any]:
    """Place particles on the devices, with an optimizer that has made no step.

    Args:
        settings: The settings.
        layout: How the particles lie.
        particles: All particles, shape (n, d).

    Returns:
        The particles, shape (padded, d), and the optimizer's state.
    """
    placed = spread(particles, layout, settings.mesh)
    leaves, tree = _like(settings, placed)
    shardings = [row_sharding(settings.mesh) if wide else replicated(settings.mesh) for _, wide in leaves]
    init = jax.jit(settings.optimizer.init, out_shardings=jax.tree.unflatten(tree, shardings))
    return placed, init(placed)


def restored_state(settings: Settings, layout: Layout, tensors: dict[str, Any]) -> tuple[Array, Any]:
    """Place on the devices what `state_tensors` gave, from any other layout.

    Args:
        settings: The settings.
        layout: How the particles lie now.
        tensors: The particles and the optimizer's arrays, in their order; other entries are ignored.

    Returns:
        The particles, shape (padded, d), and the optimizer's state.
    """
    placed = spread(tensors["particles"], layout, settings.mesh)
    leaves, tree = _like(settings, placed)
    opt_state = []
    for number, (leaf, wide) in enumerate(leaves):
        value = tensors[f"{OPT_STATE}{number}"]
        if wide:
            opt_state.append(spread(value, layout, settings.mesh))
        else:
            whole = np.asarray(value, leaf.dtype)
            opt_state.append(jax.make_array_from_callback(whole.shape, replicated(settings.mesh), whole.__getitem__))
    return placed, jax.tree.unflatten(tree, opt_state)


def state_tensors(settings: Settings, layout: Layout, state: tuple[Array, Any]) -> dict[str, Any]:
    """Fetch everything that a restart needs, whole and without rows that only fill up; all processes call this.

    Args:
        settings: The settings.
        layout: How the particles lie.
        state: The particles, shape (padded, d), and the optimizer's state.

    Returns:
        `particles`, shape (n, d), and `optimizer.0`, `optimizer.1`, ..., the optimizer's arrays.
    """
    placed, opt_state = state
    tensors = {"particles": to_host(placed, settings.mesh)[: layout.n]}
    rowwise = _rowwise(settings, placed)
    for number, (leaf, wide) in enumerate(zip(jax.tree.leaves(opt_state), rowwise, strict=True)):
        whole = to_host(leaf, settings.mesh)
        tensors[f"{OPT_STATE}{number}"] = whole[: layout.n] if wide else whole
    return tensors


def _like(settings: Settings, placed: Array) -> tuple[list[tuple[jax.ShapeDtypeStruct, bool]], Any]:
    """Return the optimizer's arrays for some particles, each with whether it has a row for each; and their tree."""
    like = jax.eval_shape(settings.optimizer.init, jax.ShapeDtypeStruct(placed.shape, placed.dtype))
    leaves, tree = jax.tree.flatten(like)
    return list(zip(leaves, _rowwise(settings, placed), strict=True)), tree


def _rowwise(settings: Settings, placed: Array) -> list[bool]:
    """Tell which arrays of the optimizer have a row for each particle: those that grow with the number of particles."""

    def shapes(rows: int) -> list[tuple[int, ...]]:
        like = jax.ShapeDtypeStruct((rows, *placed.shape[1:]), placed.dtype)
        return [leaf.shape for leaf in jax.tree.leaves(jax.eval_shape(settings.optimizer.init, like))]

    return [one != other for one, other in zip(shapes(3), shapes(5), strict=True)]
