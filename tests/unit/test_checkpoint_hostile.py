"""Manifests and files that no save leaves: the older checkpoint is restored, and nothing raises or takes memory."""

from __future__ import annotations

import copy
import json
import os
import re
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srunbook.checkpoint import CheckpointError, Checkpoints, _entries, _manifest, _tiling

HUGE = 10**30


def state(step):
    """Make a small state that tells its step."""
    return {"weight": np.full((4, 3), step, np.float32), "count": np.array(step)}


@pytest.fixture
def checkpoints(tmp_path):
    """Save steps 1 and 2."""
    return saved(tmp_path / "checkpoints")


def saved(directory):
    made = Checkpoints(directory)
    made.save(1, state(1), {"epoch": 1})
    made.save(2, state(2), {"epoch": 2})
    return made


def manifest_of(checkpoints):
    """Return the path of the newest manifest, and its content."""
    path = checkpoints.directory / "step-0000000002" / "manifest.json"
    return path, json.loads(path.read_text())["content"]


def assert_passed_over(checkpoints, caplog, message):
    """Restore step 1, and say why not step 2."""
    restored = checkpoints.restore()

    assert (restored.step, restored.metadata) == (1, {"epoch": 1})
    (record,) = caplog.records
    said = record.getMessage()
    assert said.startswith(f"step 2 is damaged and is passed over: {checkpoints.directory}/step-0000000002/")
    assert re.search(message, said), said


def reshape(shape, size=None, dtype="float32"):
    """Give the tensor `weight` another form, in all places where a manifest states it."""

    def change(content):
        content["tensors"]["weight"].update(shape=shape, dtype=dtype)
        content["files"][0]["pieces"][0].update(shape=shape, start=[0] * len(shape))
        content["files"][0]["size"] = size or content["files"][0]["size"]

    return change


def add_a_file(**changes):
    """List the data file once more, somewhat changed."""

    def change(content):
        content["files"].append(copy.deepcopy(content["files"][0]) | changes)

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (reshape([HUGE, 3], 12 * HUGE + 500), "expected a whole number from 0 to 9223372036854775807, found 10{30}"),
        (reshape([2**40, 2**40, 0]), "larger than any memory"),
        (reshape([10**15, 3], 12 * 10**15 + 500), r"has \d{3} bytes; 12,000,000,000,000,500 were written"),
        (reshape([1] * 65, 500), "65 axes are not stored, at most 64"),
        (reshape([12.0]), "whole number"),
        (reshape([True, 12]), "whole number"),
        (reshape(["4", 3]), "whole number"),
        (reshape({"4": 1}), "whole number"),
        (reshape([4, 3], dtype="__import__('os').abort()"), "unknown type"),
        (reshape([4, 3], dtype=["float32"]), "does not describe"),
        (reshape([4, 3], dtype="float128"), "unknown type"),
        (lambda c: c["tensors"]["weight"].update(framework="pickle"), "unknown type"),
        (lambda c: c["files"][0].update(name="part-00000.safetensors\n"), "expected a name like"),
        (
            lambda c: c["files"][0].update(name="part-\N{ARABIC-INDIC DIGIT ZERO}0000.safetensors"),
            "expected a name like",
        ),
        (lambda c: c["files"][0].update(name=["part-00000.safetensors"]), "does not describe"),
        (lambda c: c["files"][0].update(size=-1), "whole number"),
        (add_a_file(), "is listed twice"),
        (add_a_file(pieces=[]), "is listed twice"),
        (lambda c: c["files"][0]["pieces"].append(c["files"][0]["pieces"][0]), "elements of"),
        (lambda c: c["files"][0]["pieces"].append(7), "does not describe"),
        (lambda c: c.update(files=HUGE), "does not describe"),
        (lambda c: c.update(tensors=[]), "does not describe"),
        (lambda c: c.update(metadata=[["epoch", 2]]), "does not describe"),
        (lambda c: c.update(step=HUGE), "whole number"),
        (lambda c: c.update(step=float("nan")), "whole number"),
        (lambda c: c.update(version=[1]), "version"),
    ],
)
def test_a_forged_manifest(checkpoints, caplog, change, message):
    """A manifest that describes no checkpoint, though its checksum is right, is passed over with the reason."""
    path, content = manifest_of(checkpoints)
    change(content)
    path.write_bytes(_manifest.seal(content))

    assert_passed_over(checkpoints, caplog, message)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"7",
        b'{"sha256": "", "content": ' + b"9" * 5000 + b"}",
        b'{"sha256": "", "content": {"step": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}",
        b'{"sha256": "", "content": {"step": "\xff\xfe"}}',
        b'{"sha256": [], "content": {"step": NaN}}',
    ],
)
def test_a_manifest_that_is_no_json(checkpoints, caplog, text):
    """Numbers of thousands of digits, deep nesting and text that is not UTF-8 are damages like others."""
    path, _ = manifest_of(checkpoints)
    path.write_bytes(text)

    assert_passed_over(checkpoints, caplog, "manifest.json is not what was written")


def test_a_huge_manifest(checkpoints, caplog):
    """A sparse file of 6 GiB in the place of a manifest is not read."""
    path, _ = manifest_of(checkpoints)
    os.truncate(path, 6 << 30)

    tracemalloc.start()
    try:
        assert_passed_over(checkpoints, caplog, r"has 6,442,450,944 bytes; at most [\d,]+ are read")
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_a_file_that_shrinks_while_it_is_read(checkpoints, caplog, monkeypatch):
    """A file that is truncated between the look at its size and the first read is a damage, and no signal."""
    path, _ = manifest_of(checkpoints)
    real = os.readv

    def shrinking(handle, buffers):
        os.truncate(path.with_name("part-00000.safetensors"), 9)
        return real(handle, buffers)

    monkeypatch.setattr(os, "readv", shrinking)

    assert_passed_over(checkpoints, caplog, "part-00000.safetensors ends too early")


def leaves(content, place=()):
    """List the places of all values in nested lists and mappings."""
    items = content.items() if isinstance(content, dict) else enumerate(content)
    for key, value in items:
        yield (*place, key)
        if isinstance(value, (dict, list)):
            yield from leaves(value, (*place, key))


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 5),
    st.sampled_from([2**31, 2**63 - 1, 2**63, HUGE, -HUGE, 10**4000]),
    st.floats(),
    st.text(max_size=3),
    st.sampled_from(["../manifest.json", "part-00001.safetensors", "int8", "float64", "torch", "a\nb"]),
    st.lists(st.integers(0, 4), max_size=4),
    st.lists(st.just(1), min_size=65, max_size=66),
    st.dictionaries(st.text(max_size=2), st.integers(0, 3), max_size=2),
)


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("template") / "checkpoints")


@given(data=st.data())
def test_any_change_of_a_manifest(template, data):
    """Whatever stands in a sealed manifest: what it describes is restored if it is there, else the older checkpoint."""
    path, content = manifest_of(template)
    before = path.read_bytes()
    for _ in range(data.draw(st.integers(1, 3))):
        *way, last = data.draw(st.sampled_from(list(leaves(content))))
        within = content
        for key in way:
            within = within[key]
        if data.draw(st.booleans()):
            within[last] = data.draw(VALUES)
        else:
            del within[last]
    try:
        path.write_bytes(_manifest.seal(content))
        restored = Checkpoints(template.directory).restore()
        Checkpoints(template.directory).restore(part=lambda name, shape: tuple(slice(0, size // 2) for size in shape))
    except CheckpointError as error:
        pytest.fail(f"step 1 was not restored: {error}")
    finally:
        path.write_bytes(before)

    assert restored.step in (1, 2)
    if restored.step == 1:
        assert np.array_equal(restored.tensors["weight"], state(1)["weight"])


def test_pieces_by_the_thousand(tmp_path):
    """A tensor cut into 20,000 columns is checked; the sweep over pairs that this replaced took several minutes."""
    count = 20_000
    tensors = {"a": _entries.TensorEntry("float32", (4, count), "numpy")}
    pieces = [_entries.PieceEntry("a", (0, column), (4, 1)) for column in range(count)]
    twice = [pieces[0], *pieces[:-1]]

    def file_of(pieces):
        return [_entries.FileEntry("part-00000.safetensors", 8 + 16 * count, "", tuple(pieces))]

    _tiling.check_tiling(tensors, file_of(pieces))
    with pytest.raises(ValueError, match="the pieces of 'a' overlap"):
        _tiling.check_tiling(tensors, file_of(twice))


def cut(draw, start, shape):
    """Cut a box into boxes, by cuts through all of it at random places."""
    axes = [axis for axis, size in enumerate(shape) if size > 1]
    if not axes or draw(st.integers(0, 3)) == 0:
        return [(start, shape)]
    axis = draw(st.sampled_from(axes))
    at = draw(st.integers(1, shape[axis] - 1))
    low = (start, (*shape[:axis], at, *shape[axis + 1 :]))
    high = (
        (*start[:axis], start[axis] + at, *start[axis + 1 :]),
        (*shape[:axis], shape[axis] - at, *shape[axis + 1 :]),
    )
    return cut(draw, *low) + cut(draw, *high)


@given(data=st.data())
def test_tilings(data):
    """Boxes that hold each element once are accepted, and no others: compared with counting the elements."""
    shape = tuple(data.draw(st.lists(st.integers(1, 4), max_size=4)))
    boxes = cut(data.draw, (0,) * len(shape), shape)
    boxes = data.draw(st.permutations(boxes))
    for _ in range(data.draw(st.integers(0, 2))):
        number = data.draw(st.integers(0, len(boxes) - 1))
        start = tuple(
            data.draw(st.integers(0, size - length)) for size, length in zip(shape, boxes[number][1], strict=True)
        )
        boxes[number] = (start, boxes[number][1])
    counts = np.zeros(shape, int)
    for start, lengths in boxes:
        counts[tuple(slice(a, a + n) for a, n in zip(start, lengths, strict=True))] += 1
    tensors = {"a": _entries.TensorEntry("int8", shape, "numpy")}
    pieces = tuple(_entries.PieceEntry("a", *box) for box in boxes)
    files = [_entries.FileEntry("part-00000.safetensors", 1 << 20, "", pieces)]

    if np.all(counts == 1):
        _tiling.check_tiling(tensors, files)
    else:
        with pytest.raises(ValueError, match="the pieces of 'a' overlap"):
            _tiling.check_tiling(tensors, files)


def test_more_than_can_be_read_back(checkpoints, monkeypatch):
    """A save whose manifest would be too large to read is refused."""
    monkeypatch.setattr(_manifest, "LARGEST", 2000)

    with pytest.raises(CheckpointError, match=r"metadata take [\d,]+ bytes as JSON, at most 2,000 can be read back"):
        checkpoints.save(3, state(3), {"losses": list(range(2000))})
    assert checkpoints.restore().step == 2


def test_metadata_nested_too_deeply(checkpoints):
    """Metadata that could not be read back are refused at once."""
    nested = value = {}
    for _ in range(2000):
        value["a"] = value = {}
    circle = []
    circle.append(circle)

    for metadata in (nested, {"circle": circle}):
        with pytest.raises(TypeError, match=r"metadata: .*nested more than 100 levels deep"):
            checkpoints.save(3, state(3), metadata)
