"""Arrays of any layout in memory: strides of any sign and size, no or one element, no or many axes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

from srunbook.checkpoint import Checkpoints, Shard

MEMORY = np.arange(64, dtype=np.float32)


@st.composite
def layouts(draw):
    """Draw shape, strides in elements and offset of a view of `MEMORY`; a stride of an axis of one may lie outside."""
    shape = draw(st.lists(st.integers(0, 3), max_size=4).map(tuple))
    strides, first, last = [], 0, 0
    for size in shape:
        stride = draw(st.integers(-5, 5))
        reach = (size - 1) * stride if size else 0
        first, last = first + min(reach, 0), last + max(reach, 0)
        strides.append(stride)
    return shape, tuple(strides), draw(st.integers(-first, len(MEMORY) - 1 - last))


def view_of(shape, strides, offset):
    """Return a view of `MEMORY`; strides and offset count elements."""
    return as_strided(MEMORY[offset:], shape, [4 * stride for stride in strides])


def come_back(directory, tensors, background):
    """Return what becomes of tensors when they are saved and restored."""
    checkpoints = Checkpoints(directory)
    checkpoints.save(1, tensors, background=background)
    return checkpoints.restore().tensors


def assert_numpy(restored, saved):
    assert restored.keys() == saved.keys()
    for name, array in saved.items():
        assert (restored[name].dtype, restored[name].shape) == (array.dtype, array.shape)
        assert np.array_equal(restored[name], array)


@given(views=st.lists(layouts(), min_size=1, max_size=8), background=st.booleans())
def test_any_layout_of_numpy(tmp_path_factory, views, background):
    """Views with any strides come back, and so do the same views as shards of a larger array."""
    tensors = {str(number): view_of(*view) for number, view in enumerate(views)}
    shards = {
        f"shard {name}": Shard(array, tuple(slice(0, size) for size in array.shape), array.shape)
        for name, array in tensors.items()
    }

    restored = come_back(tmp_path_factory.mktemp("numpy"), tensors | shards, background)

    assert_numpy(restored, tensors | {f"shard {name}": array for name, array in tensors.items()})


@given(views=st.lists(layouts(), min_size=1, max_size=8), background=st.booleans())
def test_any_layout_of_torch(tmp_path_factory, views, background):
    """Torch tensors with any strides that torch knows, overlapping ones included, come back."""
    torch = pytest.importorskip("torch")
    memory = torch.arange(64, dtype=torch.bfloat16)
    tensors = {}
    for number, (shape, strides, _) in enumerate(views):
        tensors[str(number)] = torch.as_strided(memory, shape, [abs(stride) for stride in strides], 1)

    restored = come_back(tmp_path_factory.mktemp("torch"), tensors, background)

    assert restored.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert (restored[name].dtype, restored[name].shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(restored[name], tensor)


@pytest.mark.parametrize("background", [False, True], ids=["now", "background"])
def test_tensors_of_no_or_one_element(tmp_path, background):
    """One element of a column, expanded scalars and empty slices have strides that no dense tensor has."""
    torch = pytest.importorskip("torch")
    matrix = torch.arange(24.0).reshape(4, 6)
    tensors = {
        "scalar": matrix[1, 2],
        "one of a column": matrix[:1, 2],
        "one of a transposed": matrix.T[:1, :1],
        "expanded to one": torch.tensor(2.0).expand(1),
        "expanded to none": torch.ones(1).expand(0),
        "expanded": torch.ones(1).expand(4, 5),
        "no rows": torch.empty(0, 3),
        "no columns": matrix[:, 6:].T,
        "parameter": torch.nn.Parameter(matrix[:1, 3]),
        "conjugate": torch.complex(matrix, matrix)[:1, 2].conj(),
    }

    restored = come_back(tmp_path, tensors, background)

    assert {name: tensor.shape for name, tensor in restored.items()} == {
        name: tensor.shape for name, tensor in tensors.items()
    }
    assert all(torch.equal(restored[name], tensor) for name, tensor in tensors.items())


def test_background_copies_whatever_the_strides(tmp_path):
    """A copy is taken also of tensors that are expanded or have one element."""
    torch = pytest.importorskip("torch")
    matrix = torch.ones(2, 2)
    tensors = {"one": matrix[:1, 1], "expanded": matrix[0, 0].expand(3), "plain": matrix}
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, tensors, background=True)
    matrix.zero_()

    assert all(torch.all(tensor == 1) for tensor in checkpoints.restore().tensors.values())


def test_layouts_of_jax(tmp_path):
    """JAX arrays without axes, without elements, and made by transposing or broadcasting come back."""
    jnp = pytest.importorskip("jax.numpy")
    arrays = {
        "scalar": jnp.float32(3),
        "no rows": jnp.empty((0, 3)),
        "transposed": jnp.arange(6).reshape(2, 3).T,
        "one": jnp.arange(6).reshape(2, 3)[:1, 1],
        "broadcast": jnp.broadcast_to(jnp.bfloat16(2), (3, 1)),
        "reversed": jnp.arange(5)[::-1],
    }

    assert_numpy(come_back(tmp_path, arrays, background=True), {name: np.asarray(a) for name, a in arrays.items()})


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_as_many_axes_as_numpy_has(tmp_path, library):
    """An array of 64 axes comes back; one more, which only torch can have, is refused by name."""
    torch = pytest.importorskip("torch")
    make = {"numpy": np.ones, "torch": torch.ones}[library]

    assert come_back(tmp_path, {"a": make((1,) * 64)}, background=False)["a"].shape == (1,) * 64
    if library == "torch":
        with pytest.raises(TypeError, match=r"tensor 'b': 65 axes are not stored, at most 64"):
            Checkpoints(tmp_path).save(2, {"b": torch.ones(1).reshape((1,) * 65)})
