"""Place particles on devices, fetch arrays from them, and compare what the processes were given."""

from __future__ import annotations

# mypy: disable-error-code="no-untyped-call"
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec

from srunbook.svgd.results import Holding, SVGDError

AXIS = "particles"
"""Name of the axis of the mesh."""


@dataclass(frozen=True)
class Layout:
    """How particles lie on devices, in equal parts; rows that are no particles fill up the last devices."""

    n: int  # particles
    mesh: Mesh  # the devices, along one axis

    @property
    def on_cpu(self) -> bool:
        """Return whether the devices are CPUs."""
        return bool(self.mesh.devices.flat[0].platform == "cpu")

    @property
    def rows(self) -> int:
        """Return the number of rows on each device, including those that fill up."""
        return -(-self.n // self.mesh.devices.size)

    @property
    def padded(self) -> int:
        """Return the number of rows on all devices, including those that fill up."""
        return self.rows * self.mesh.devices.size

    def mask(self) -> Array:
        """Return which rows of this device are particles, shape (rows,); call it inside `jax.shard_map`."""
        return lax.axis_index(AXIS) * self.rows + jnp.arange(self.rows) < self.n

    def sharding(self, *, by_row: bool) -> NamedSharding:
        """Return the sharding of an array with a row for each particle, or of one that every device holds whole."""
        return NamedSharding(self.mesh, Spec(AXIS) if by_row else Spec())

    def place(self, array: np.ndarray[Any, Any], *, by_row: bool = True) -> Array:
        """Place an array on the devices, whole or by row: shape (n, ...) becomes (padded, ...).

        Copies of the first row fill up the last devices: the density is as good there as anywhere.
        """
        if by_row:
            array = np.concatenate([array, np.broadcast_to(array[:1], (self.padded - self.n, *array.shape[1:]))])
        return jax.make_array_from_callback(array.shape, self.sharding(by_row=by_row), lambda index: array[index])

    def holdings(self) -> tuple[Holding, ...]:
        """List what each device holds, in the order of the mesh."""
        places: Mapping[Any, Any] = self.sharding(by_row=True).devices_indices_map((self.padded,))
        return tuple(
            Holding(device.process_index, f"{device.platform}:{device.id}", range(*rows.indices(self.n)))
            for device, (rows,) in places.items()
        )


def to_host(array: Array) -> np.ndarray[Any, Any]:
    """Fetch a whole array into the memory of every process; all processes call this."""
    if array.is_fully_addressable or array.is_fully_replicated:
        return np.asarray(array)
    whole: np.ndarray[Any, Any] = multihost_utils.process_allgather(array, tiled=True)
    return whole


def compare_processes(arguments: dict[str, Any]) -> None:
    """Check that all processes were given the same; otherwise a run would hang or end in nonsense.

    One collective call gathers hashes of the arguments, so every process raises the same error.

    Args:
        arguments: By name: trees of arrays, numbers and texts.

    Raises:
        SVGDError: A process was given something else than process 0.
    """
    if jax.process_count() == 1:
        return
    everywhere = multihost_utils.process_allgather(np.stack([*map(digest, arguments.values())]))
    differs = (everywhere != everywhere[0]).any(axis=2)  # (processes, arguments)
    if differs.any():
        processes = ", ".join(str(number) for number in np.flatnonzero(differs.any(axis=1)))
        names = ", ".join(name for name, other in zip(arguments, differs.any(axis=0), strict=True) if other)
        raise SVGDError(
            f"process {processes} was given other values than process 0: {names}; give all processes the same, "
            "and make random numbers from the same seed"
        )


def digest(tree: Any) -> np.ndarray[Any, Any]:
    """Return 8 bytes that differ if arrays do; arrays that lie on several processes are left out."""
    hashed = hashlib.sha256()
    for leaf in jax.tree.leaves(tree):
        if getattr(leaf, "is_fully_addressable", True):
            array = np.asarray(leaf)
            hashed.update(f"{array.shape} {array.dtype} ".encode() + array.tobytes())
    return np.frombuffer(hashed.digest()[:8], np.uint8)
