"""Place particles on the devices of a mesh, and bring arrays back from them."""

from __future__ import annotations

# mypy: disable-error-code="no-untyped-call"
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec

from srunbook.svgd._result import Floats, Holding

AXIS = "particles"
"""Name of the axis of the mesh."""


@dataclass(frozen=True)
class Layout:
    """How particles lie on devices.

    Args:
        n: Number of particles, without the rows that only fill up the last devices.
        shards: Number of devices.
        ring: Whether particles travel from device to device, in place of being gathered on each.
        on_cpu: Whether the devices are CPUs.
    """

    n: int
    shards: int
    ring: bool
    on_cpu: bool

    @property
    def rows(self) -> int:
        """Return the number of rows on each device, with those that fill up."""
        return -(-self.n // self.shards)

    @property
    def padded(self) -> int:
        """Return the number of rows on all devices, with those that fill up."""
        return self.rows * self.shards

    def mask(self) -> Array:
        """Return which rows of this device are particles, shape (rows,); call it inside `jax.shard_map`."""
        return lax.axis_index(AXIS) * self.rows + jnp.arange(self.rows) < self.n


def row_sharding(mesh: Mesh) -> NamedSharding:
    """Return the sharding of an array with one row for each particle."""
    return NamedSharding(mesh, Spec(AXIS))


def replicated(mesh: Mesh) -> NamedSharding:
    """Return the sharding of an array that every device holds whole."""
    return NamedSharding(mesh, Spec())


def spread(rows: Floats, layout: Layout, mesh: Mesh) -> Array:
    """Place rows on the devices.

    Copies of the first row fill up the last devices: the density is as good there as anywhere.

    Args:
        rows: One row for each particle, shape (n, ...).
        layout: How the particles lie.
        mesh: The devices.

    Returns:
        The rows with those that fill up, shape (padded, ...).
    """
    filled = np.concatenate([rows, np.broadcast_to(rows[:1], (layout.padded - layout.n, *rows.shape[1:]))])
    return jax.make_array_from_callback(filled.shape, row_sharding(mesh), lambda index: filled[index])


def to_host(array: Array, mesh: Mesh) -> np.ndarray[Any, Any]:
    """Fetch a whole array into the memory of every process; all processes call this."""
    if array.is_fully_addressable:
        return np.asarray(array)
    if not array.is_fully_replicated:
        array = jax.jit(_identity, out_shardings=replicated(mesh))(array)
    return np.asarray(array.addressable_data(0))


def _identity(array: Array) -> Array:
    return array


def holdings(layout: Layout, mesh: Mesh) -> tuple[Holding, ...]:
    """List what each device holds, in the order of the mesh."""
    places = row_sharding(mesh).devices_indices_map((layout.padded,))
    held: list[tuple[Any, slice]] = [(device, index[0]) for device, index in places.items()]
    return tuple(
        Holding(device.process_index, f"{device.platform}:{device.id}", range(*rows.indices(layout.n)))
        for device, rows in held
    )
