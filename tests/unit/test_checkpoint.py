"""Checkpoints of one process: what is saved comes back, and what cannot be saved changes nothing."""

from __future__ import annotations

import errno
import json
import os
import threading

import numpy as np
import pytest

from srunbook.checkpoint import CheckpointError, Checkpoints, Shard, _files
from srunbook.checkpoint._manifest import seal


def bits(array):
    """Return an array's type, shape and bytes."""
    array = np.asarray(array)
    return array.dtype.newbyteorder("<").str, array.shape, array.astype(array.dtype.newbyteorder("<")).tobytes()


def state(step):
    """Make a small state that tells its step."""
    return {"weight": np.full((4, 3), step, np.float32), "count": np.array(step)}


@pytest.fixture
def checkpoints(tmp_path):
    return Checkpoints(tmp_path / "checkpoints")


@pytest.fixture(params=[False, True], ids=["now", "background"])
def background(request):
    return request.param


NUMPY = {
    "matrix": np.arange(12.0).reshape(3, 4),
    "transposed": np.arange(12, dtype=np.int16).reshape(3, 4).T,
    "every second": np.arange(10, dtype=np.uint8)[::2],
    "scalar": np.array(3.5, np.float16),
    "one number": np.float32(2),
    "nothing": np.empty((0, 3), np.int64),
    "truth": np.array([True, False]),
    "big endian": np.arange(3, dtype=">f4"),
    "complex": np.array([1 + 2j], np.complex64),
    "not a number": np.array([np.nan, np.inf, -0.0]),
}


def test_numpy_comes_back(checkpoints, background):
    """NumPy arrays of any layout come back with the same bits, and metadata as JSON holds them."""
    checkpoints.save(7, NUMPY, {"epoch": 3, "best": float("inf"), "betas": (0.9, 0.999)}, background=background)
    restored = checkpoints.restore()

    assert restored.step == 7
    assert {name: bits(array) for name, array in restored.tensors.items()} == {
        name: bits(array) for name, array in NUMPY.items()
    }
    assert restored.metadata == {"epoch": 3, "best": float("inf"), "betas": [0.9, 0.999]}


def test_torch_comes_back(checkpoints, background):
    """Torch tensors of every stored type come back as torch tensors with the same bits."""
    torch = pytest.importorskip("torch")
    values = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    tensors = {
        name: values.to(getattr(torch, name))
        for name in ("float32", "float64", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int64", "bool")
    }
    tensors |= {
        "transposed": values.T,
        "conjugate": values.to(torch.complex64).conj(),
        "parameter": torch.nn.Parameter(values),
        "scalar": torch.tensor(2.5),
        "nothing": torch.empty(0, 3),
        "uint16": torch.tensor([65535], dtype=torch.uint16),
    }

    checkpoints.save(0, tensors, background=background)
    restored = checkpoints.restore().tensors

    for name, tensor in tensors.items():
        plain = tensor.detach().resolve_conj().contiguous()
        assert (restored[name].dtype, restored[name].shape) == (plain.dtype, plain.shape), name
        assert torch.equal(restored[name].reshape(-1).view(torch.uint8), plain.reshape(-1).view(torch.uint8)), name


def test_jax_comes_back(checkpoints, background):
    """JAX arrays come back as NumPy arrays, bfloat16 included, which torch reads as well."""
    jnp = pytest.importorskip("jax.numpy")
    tensors = {"half": jnp.arange(5, dtype=jnp.bfloat16), "whole": jnp.arange(6).reshape(2, 3)}

    checkpoints.save(0, tensors, background=background)
    restored = checkpoints.restore().tensors

    assert all(type(restored[name]) is np.ndarray and restored[name].dtype == tensors[name].dtype for name in tensors)
    assert all(np.array_equal(restored[name], tensors[name]) for name in tensors)
    torch = pytest.importorskip("torch")
    as_torch = checkpoints.restore(framework="torch").tensors["half"]
    assert torch.equal(as_torch, torch.arange(5, dtype=torch.bfloat16))


def test_files_are_safetensors(checkpoints):
    """The library safetensors reads the files."""
    library = pytest.importorskip("safetensors.numpy")
    plain = {name: array for name, array in NUMPY.items() if name != "complex"}

    checkpoints.save(1, plain)
    (file,) = checkpoints.directory.glob("step-0000000001/*.safetensors")
    read = library.load_file(file)

    assert {name: bits(array) for name, array in read.items()} == {name: bits(array) for name, array in plain.items()}


def test_checkpoints_of_earlier_versions(checkpoints):
    """A manifest that is indented, and has no note of who saved it beside it, is read."""
    checkpoints.save(1, NUMPY, {"epoch": 3})
    folder = checkpoints.directory / "step-0000000001"
    sealed = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(sealed, indent=1) + "\n")
    (folder / "save.json").unlink()

    restored = checkpoints.restore()

    assert restored.metadata == {"epoch": 3}
    assert {name: bits(array) for name, array in restored.tensors.items()} == {
        name: bits(array) for name, array in NUMPY.items()
    }


def test_checkpoint_of_a_newer_version(checkpoints):
    """A manifest of a newer version is an error that names both; older steps are not taken, and nothing is moved."""
    for step in (1, 2):
        checkpoints.save(step, NUMPY)
    manifest = checkpoints.directory / "step-0000000002" / "manifest.json"
    content = json.loads(manifest.read_text())["content"] | {"version": 2}
    manifest.write_bytes(seal(content))
    before = sorted(path for path in checkpoints.directory.rglob("*"))

    with pytest.raises(CheckpointError, match="has version 2 of the format, and this srunbook reads version 1"):
        checkpoints.restore()
    assert sorted(path for path in checkpoints.directory.rglob("*")) == before


def test_large_arrays(checkpoints, background):
    """Arrays of several megabytes, which are written, hashed and read in chunks, come back and can be written to."""
    whole = np.arange(5 << 20, dtype=np.uint32).reshape(5, -1)

    checkpoints.save(1, {"whole": whole, "turned": whole.T}, background=background)
    restored = checkpoints.restore(part=lambda name, shape: (slice(1, 4),) if name == "whole" else None).tensors

    assert np.array_equal(restored["whole"], whole[1:4])
    assert np.array_equal(restored["turned"], whole.T)
    restored["turned"] += 1
    assert restored["turned"].flags.writeable


def test_no_tensors(checkpoints):
    """A checkpoint may hold metadata alone."""
    checkpoints.save(1, {}, {"note": "nothing yet"})

    assert checkpoints.restore().metadata == {"note": "nothing yet"}
    assert checkpoints.restore().tensors == {}


def test_nothing_saved(checkpoints):
    """Without checkpoints there are no steps and nothing to restore, and the directory is not made."""
    assert checkpoints.steps() == []
    assert checkpoints.restore() is None
    assert not checkpoints.directory.exists()


def test_old_ones_are_removed(tmp_path):
    """The newest `keep` checkpoints are kept, and steps() names them in ascending order."""
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in (9, 10, 100, 1000):
        checkpoints.save(step, state(step))

    assert checkpoints.steps() == [100, 1000]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-0000000100", "step-0000001000"]


def test_old_ones_outlive_a_failed_save(tmp_path, monkeypatch):
    """With keep=1, the only checkpoint is still there when the next save fails at its last rename."""
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(1, state(1))
    rename = os.rename

    def refuse(source, target):
        if str(source).endswith(".partial"):
            raise OSError(errno.EIO, "Input/output error", str(source))
        rename(source, target)

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(CheckpointError, match=r"step 2 was not saved in .*Input/output error; kept: step 1"):
        checkpoints.save(2, state(2))

    assert checkpoints.restore().step == 1
    assert [path.name for path in tmp_path.iterdir()] == ["step-0000000001"]


def test_same_step_again(checkpoints):
    """A step that was just saved or restored is not saved again."""
    checkpoints.save(5, state(5))
    checkpoints.save(5, state(0))
    again = Checkpoints(checkpoints.directory)
    again.restore()
    again.save(5, state(0))

    assert np.all(checkpoints.restore().tensors["weight"] == 5)


@pytest.mark.parametrize("step", [5, 4])
def test_a_new_training_in_an_old_directory(checkpoints, step):
    """A training that has not restored does not write beside newer checkpoints of another one."""
    checkpoints.save(5, state(5))

    with pytest.raises(CheckpointError, match=r"already has step 5.* restore\(\) first"):
        Checkpoints(checkpoints.directory).save(step, state(step))
    assert checkpoints.restore().step == 5


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"rate": 0.1}, r"tensor 'rate': expected a torch tensor.* found float"),
        ({"names": np.array(["a"])}, r"tensor 'names': elements of type <U1 are not stored"),
        ({"objects": np.array([{}])}, r"tensor 'objects': elements of type object are not stored"),
        ({"wide": np.zeros(2, np.complex128)}, r"complex128 are not stored; stored are bool, uint8"),
        ({"masked": np.ma.masked_array([1.0], [True])}, r"found MaskedArray"),
        ({3: np.zeros(2)}, r"names of tensors are strings"),
        ({"__metadata__": np.zeros(2)}, r"names of tensors are strings"),
    ],
)
def test_what_is_not_stored(checkpoints, tensors, message, background):
    """A value that is no plain array is refused at once and by name, and nothing is left behind."""
    with pytest.raises(TypeError, match=message):
        checkpoints.save(1, tensors, background=background)

    assert not checkpoints.directory.exists()


def test_random_keys_of_jax(checkpoints):
    """A typed random key of JAX is refused, with what to store instead."""
    jax = pytest.importorskip("jax")

    with pytest.raises(TypeError, match=r"jax\.random\.key_data"):
        checkpoints.save(1, {"key": jax.random.key(0)})


def test_torch_tensors_without_memory(checkpoints):
    """Sparse tensors, and tensors on the meta device, are refused."""
    torch = pytest.importorskip("torch")

    for tensor in (torch.zeros(2, device="meta"), torch.eye(2).to_sparse()):
        with pytest.raises(TypeError, match="expected a dense tensor with memory"):
            checkpoints.save(1, {"a": tensor})


@pytest.mark.parametrize(
    ("metadata", "message"),
    [({"loss": np.float32(1)}, "float32 is not JSON"), ({"a": [{3: "x"}]}, "key 3 is not text"), ({"a": {1}}, "set")],
)
def test_metadata_that_json_cannot_hold(checkpoints, metadata, message):
    """Metadata that would come back as something else are refused."""
    with pytest.raises(TypeError, match=f"metadata: .*{message}"):
        checkpoints.save(1, state(1), metadata)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"keep": 0}, "keep=0"),
        ({"process_id": 1}, "process_id=1 of num_processes=1"),
        ({"num_processes": 2}, "needs barrier="),
    ],
)
def test_bad_arguments(tmp_path, arguments, message):
    """Arguments that make no sense are refused with their value."""
    with pytest.raises(ValueError, match=message):
        Checkpoints(tmp_path, **arguments)


def test_negative_step(checkpoints):
    """Steps count from 0."""
    with pytest.raises(ValueError, match="step=-1"):
        checkpoints.save(-1, state(1))


def test_unknown_framework(checkpoints):
    """Only two frameworks can be asked for."""
    with pytest.raises(ValueError, match="framework='jax': it is 'numpy' or 'torch'"):
        checkpoints.restore(framework="jax")


def test_another_model(checkpoints):
    """A checkpoint of another model is refused with all that differs, and no older one is taken for it."""
    checkpoints.save(1, {"weight": np.zeros(2, np.float32)})
    checkpoints.save(2, {"weight": np.zeros(3, np.float32), "bias": np.zeros(1)})

    with pytest.raises(
        CheckpointError,
        match=r"step-0000000002 is whole, but not of this model: it lacks scale; it has besides bias; "
        r"it differs in weight is float32 \(3,\), expected float64 \(2,\)",
    ):
        checkpoints.restore(expect={"weight": np.zeros(2), "scale": (1,)})


def test_the_expected_model(checkpoints):
    """What is expected may be given as arrays or as shapes."""
    checkpoints.save(1, state(1))

    assert checkpoints.restore(expect=state(0)).step == 1
    assert checkpoints.restore(expect={"weight": (4, 3), "count": ()}).step == 1
    assert checkpoints.restore(expect={"weight": Shard(np.zeros((1, 3), "f4"), (slice(0, 1),), (4, 3)), "count": ()})


def test_background_takes_what_was_there(checkpoints):
    """A save in the background holds the values of the moment it was called, whatever training does to them after."""
    tensors = state(1)
    metadata = {"losses": [1]}
    checkpoints.save(1, tensors, metadata, background=True)
    tensors["weight"][:] = -1
    metadata["losses"].append(2)

    restored = checkpoints.restore()
    assert np.all(restored.tensors["weight"] == 1)
    assert restored.metadata == {"losses": [1]}


def test_background_in_torch_takes_what_was_there(checkpoints):
    """So does it with torch tensors that share memory with the model."""
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(3, 3)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    checkpoints.save(1, model.state_dict(), background=True)
    with torch.no_grad():
        model.weight.zero_()

    assert torch.equal(checkpoints.restore().tensors["weight"], before["weight"])


def test_background_returns_before_it_writes(checkpoints, monkeypatch):
    """A save in the background returns while nothing is written yet."""
    go = threading.Event()
    write = _files.write_part

    def slow(*arguments):
        go.wait()
        return write(*arguments)

    monkeypatch.setattr(_files, "write_part", slow)
    checkpoints.save(1, state(1), background=True)

    assert checkpoints.steps() == []
    go.set()
    checkpoints.wait()
    assert checkpoints.steps() == [1]
