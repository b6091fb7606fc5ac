"""Turn arrays of torch, NumPy and JAX into plain memory, and back."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Bits: TypeAlias = npt.NDArray[Any]
"""The bits of an array as unsigned integers, so that types which NumPy does not know need no special treatment."""

Index: TypeAlias = tuple[slice, ...]
"""A box of a global array: one slice for each axis, without steps."""

DTYPES = {
    "bool": ("BOOL", 1),
    "uint8": ("U8", 1),
    "int8": ("I8", 1),
    "uint16": ("U16", 2),
    "int16": ("I16", 2),
    "uint32": ("U32", 4),
    "int32": ("I32", 4),
    "uint64": ("U64", 8),
    "int64": ("I64", 8),
    "float8_e4m3fn": ("F8_E4M3", 1),
    "float8_e5m2": ("F8_E5M2", 1),
    "float16": ("F16", 2),
    "bfloat16": ("BF16", 2),
    "float32": ("F32", 4),
    "float64": ("F64", 8),
    "complex64": ("C64", 8),
}
"""Name of each type in torch, NumPy and JAX: its name in safetensors, and its size in bytes."""

FRAMEWORKS = ("numpy", "torch")
"""What restored tensors can be."""

MAX_AXES = 64
"""How many axes an array of NumPy can have."""


def bits_type(dtype: str) -> np.dtype[Any]:
    """Return the type of unsigned integers that holds the bits of one element."""
    return np.dtype(f"<u{DTYPES[dtype][1]}")


def check_shape(shape: tuple[int, ...], dtype: str) -> None:
    """Check that an array of NumPy can have a shape.

    Raises:
        ValueError: It has too many axes, or more bytes than can be counted; axes of 0 count as 1, as in NumPy.
    """
    if len(shape) > MAX_AXES:
        raise ValueError(f"{len(shape)} axes are not stored, at most {MAX_AXES}")
    if math.prod(max(size, 1) for size in shape) * DTYPES[dtype][1] > sys.maxsize:
        raise ValueError(f"the shape {shape} is larger than any memory")


@dataclass(frozen=True)
class Shard:
    """The part of a global array that this process holds.

    Together the processes hold every element of the global array exactly once.

    Args:
        array: The part: a torch tensor, a NumPy array or a JAX array.
        index: Where it lies in the global array: one slice for each axis. Axes that are left out are whole.
        global_shape: Shape of the global array.

    Raises:
        ValueError: The shape of the part is not that of its slices, or a slice leaves the global array.

    >>> Shard(np.zeros((2, 3)), (slice(4, 6),), (8, 3)).start
    (4, 0)
    """

    array: Any
    index: Index
    global_shape: tuple[int, ...]

    def __post_init__(self) -> None:
        """Reject a part whose shape is not that of its slices."""
        _, shape = box(self.index, tuple(self.global_shape))
        found = tuple(self.array.shape)
        if found != shape:
            raise ValueError(
                f"a shard at {self.index} of {tuple(self.global_shape)} has the shape {shape}, this one has {found}; "
                "for example Shard(rows, (slice(4, 8),), (16, 3)) with rows of shape (4, 3)"
            )

    @property
    def start(self) -> tuple[int, ...]:
        """Where the part begins on each axis."""
        return box(self.index, tuple(self.global_shape))[0]


def box(index: Index, global_shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return start and shape of a box of a global array.

    >>> box((slice(4, 6),), (8, 3))
    ((4, 0), (2, 3))

    Raises:
        TypeError: A slice begins or ends at something else than a whole number.
        ValueError: There are more slices than axes, or a slice has a step or leaves the array.
    """
    if len(index) > len(global_shape):
        raise ValueError(f"{len(index)} slices for a tensor of {len(global_shape)} axes: {index}")
    full = (*index, *[slice(None)] * (len(global_shape) - len(index)))
    start, shape = [], []
    for part, size in zip(full, global_shape, strict=True):
        first = 0 if part.start is None else operator.index(part.start)
        last = operator.index(size if part.stop is None else part.stop)
        if part.step not in (None, 1) or not 0 <= first <= last <= size:
            raise ValueError(f"{part} of an axis of {size}: needs 0 <= start <= stop <= {size} and no step")
        start.append(first)
        shape.append(last - first)
    return tuple(start), tuple(shape)


@dataclass(frozen=True)
class Piece:
    """A box of a tensor, as it goes into a file.

    Args:
        name: Name of the tensor.
        dtype: Type of its elements, a key of `DTYPES`.
        framework: `numpy` or `torch`: what it comes back as.
        global_shape: Shape of the whole tensor.
        start: Where the box begins.
        bits: The bits, contiguous.
    """

    name: str
    dtype: str
    framework: str
    global_shape: tuple[int, ...]
    start: tuple[int, ...]
    bits: Bits


def pieces_of(tensors: Mapping[str, Any], process_id: int, *, copy: bool) -> list[Piece]:
    """List what this process has to write.

    Process 0 writes the arrays that all processes hold. Each process writes its `Shard`s, and its part of a JAX array
    that is spread over processes.

    Args:
        tensors: Arrays and shards by name.
        process_id: Number of this process.
        copy: Whether the pieces are copies, so that the arrays may change afterwards.

    Raises:
        TypeError: A value is not an array, or of a type that is not stored.
    """
    found = []
    for name, value in tensors.items():
        if not isinstance(name, str) or name == "__metadata__":
            raise TypeError(f"names of tensors are strings other than '__metadata__', found {name!r}")
        try:
            found += _pieces(name, value, process_id, copy=copy)
        except (TypeError, ValueError) as error:
            raise TypeError(f"tensor {name!r}: {error}") from None
    return found


def _pieces(name: str, value: Any, process_id: int, *, copy: bool) -> list[Piece]:
    dtype = dtype_of(value)
    if isinstance(value, Shard):
        shape = tuple(map(operator.index, value.global_shape))
        framework, bits = _bits(value.array, dtype, copy=copy)
        return [Piece(name, dtype, framework, shape, value.start, bits)]
    if _is_spread_jax(value):
        shape = tuple(value.shape)
        shards = [shard for shard in value.addressable_shards if shard.replica_id == 0]
        return [
            Piece(name, dtype, framework, shape, box(shard.index, shape)[0], bits)
            for shard in shards
            for framework, bits in [_bits(shard.data, dtype, copy=copy)]
        ]
    if process_id != 0:
        return []
    framework, bits = _bits(value, dtype, copy=copy)
    return [Piece(name, dtype, framework, bits.shape, (0,) * bits.ndim, bits)]


def _is_spread_jax(value: Any) -> bool:
    jax = sys.modules.get("jax")
    if jax is None or not isinstance(value, jax.Array):
        return False
    return not (value.is_fully_addressable or value.is_fully_replicated)


def dtype_of(value: Any) -> str:
    """Return the type of an array's elements, as a key of `DTYPES`.

    Raises:
        TypeError: The value is not an array, or its type is not stored.
        ValueError: Its shape is not stored.
    """
    array = value.array if isinstance(value, Shard) else value
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    known: tuple[Any, ...] = (np.ndarray, np.generic)
    known = (*known, torch.Tensor) if torch else known
    known = (*known, jax.Array) if jax else known
    if not isinstance(array, known) or isinstance(array, np.ma.MaskedArray):
        raise TypeError(
            f"expected a torch tensor, a NumPy array, a JAX array or a Shard of one, found {type(array).__name__}; "
            "numbers and text belong into the metadata"
        )
    name = dtype_name(array.dtype)
    if name.startswith("key<"):
        raise TypeError("a JAX random key is not stored; store jax.random.key_data(key)")
    if name not in DTYPES:
        raise TypeError(f"elements of type {array.dtype} are not stored; stored are {', '.join(DTYPES)}")
    check_shape(tuple(value.global_shape if isinstance(value, Shard) else array.shape), name)
    return name


def dtype_name(dtype: Any) -> str:
    """Return the name of a type of elements, the same for all frameworks.

    >>> dtype_name(np.dtype(">f4"))
    'float32'
    """
    return str(getattr(dtype, "name", dtype)).removeprefix("torch.")


def _bits(array: Any, dtype: str, *, copy: bool) -> tuple[str, Bits]:
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if torch is not None and isinstance(array, torch.Tensor):
        return "torch", _torch_bits(torch, array, bits_type(dtype), copy=copy)
    if jax is not None and isinstance(array, jax.Array) and not array.is_fully_addressable:
        array = array.addressable_data(0)  # replicated: each process has all of it
    plain = np.asarray(array)
    if plain.dtype.byteorder == ">":
        plain = plain.astype(plain.dtype.newbyteorder("<"))
    plain = np.array(plain, order="C") if copy else np.asarray(plain, order="C")
    return "numpy", plain.view(bits_type(dtype))


def _torch_bits(torch: Any, tensor: Any, kind: np.dtype[Any], *, copy: bool) -> Bits:
    if hasattr(tensor, "placements"):
        raise TypeError("a DTensor is not stored as it is; give Shard(tensor.to_local(), index, tensor.shape)")
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type == "meta":
        raise TypeError(f"expected a dense tensor with memory, found {tensor.layout} on {tensor.device}")
    host = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    if (
        host.numel() < 2
    ):  # counts as contiguous whatever its strides are, and a view as bytes needs those of a dense one
        host = host.clone(memory_format=torch.contiguous_format)
    if copy and host.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr():
        host = host.clone()
    bits: Bits = host.reshape(-1).view(torch.uint8).numpy().view(kind).reshape(tuple(tensor.shape))
    return bits


def from_bits(bits: Bits, dtype: str, framework: str) -> Any:
    """Return the array of a framework that has these bits; it shares their memory.

    Args:
        bits: The bits, contiguous, of the shape of the array.
        dtype: Type of the elements, a key of `DTYPES`.
        framework: `numpy` or `torch`.

    Raises:
        ImportError: The type or the framework needs a package that is not installed.
    """
    if framework == "torch":
        import torch

        flat = torch.from_numpy(bits.reshape(-1).view(np.uint8))
        return flat.view(getattr(torch, dtype)).reshape(bits.shape)
    try:
        kind = np.dtype(dtype)
    except TypeError:
        import ml_dtypes  # JAX brings it

        kind = np.dtype(getattr(ml_dtypes, dtype))
    return bits.view(kind)
