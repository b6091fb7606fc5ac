"""Checkpoints of several processes, which are threads here: shards, and what one process's failure does to all."""

from __future__ import annotations

import contextlib
import errno
import itertools
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srunbook.checkpoint import CheckpointError, Checkpoints, Shard, _files, _reading

ROWS, COLUMNS = 12, 5
OTHER_PAIRS = [(1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (4, 1), (4, 4)]
OTHER_PARTS = [(1, 1), (1, 3), (2, 1), (2, 3), (2, 4), (4, 1), (4, 4)]
GLOBAL = np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)


def rows(rank, count, total=ROWS):
    """Return the rows of a process."""
    return (slice(total * rank // count, total * (rank + 1) // count),)


def state(rank, count, factor=1):
    """Return what a process has: its rows, a block of columns, and what all have."""
    mine = rows(rank, count)
    columns = (slice(None), *rows(rank, count, COLUMNS))
    return {
        "rows": Shard(GLOBAL[mine] * factor, mine, GLOBAL.shape),
        "columns": Shard(GLOBAL[columns] * factor, columns, GLOBAL.shape),
        "same": np.full(3, factor, np.int32),
    }


def names(directory):
    """List what is in a directory."""
    return sorted(path.name for path in directory.iterdir())


def save_all(directory, processes, steps=(1,), background=False):
    """Save on all processes; return what came of it on each."""

    def save(rank):
        checkpoints = Checkpoints(directory, **processes.arguments(rank))
        for step in steps:
            checkpoints.save(step, state(rank, processes.count, step), {"step": step}, background=background)
        checkpoints.wait()
        return checkpoints.steps()

    return processes.run(save)


def restore_all(directory, processes, **options):
    """Restore on all processes."""
    return processes.run(lambda rank: Checkpoints(directory, **processes.arguments(rank)).restore(**options))


@pytest.mark.parametrize("background", [False, True], ids=["now", "background"])
@pytest.mark.parametrize(
    ("saved_by", "restored_by"),
    [(4, 2), (2, 4), *(pytest.param(*pair, marks=pytest.mark.full) for pair in OTHER_PAIRS)],
)
def test_other_number_of_processes(tmp_path, processes, saved_by, restored_by, background):
    """A state sharded over 1, 2 or 4 processes is the same when 1, 2 or 4 processes restore it."""
    assert save_all(tmp_path, processes(saved_by), (1, 2), background) == [[1, 2]] * saved_by
    restored = restore_all(tmp_path, processes(restored_by))

    for each in restored:
        assert (each.step, each.metadata) == (2, {"step": 2})
        assert np.array_equal(each.tensors["rows"], 2 * GLOBAL)
        assert np.array_equal(each.tensors["columns"], 2 * GLOBAL)
        assert each.tensors["same"].tolist() == [2, 2, 2]
    assert len(list(tmp_path.glob("step-0000000002/*.safetensors"))) == saved_by
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("saved_by", "restored_by"),
    [(4, 3), (1, 4), *(pytest.param(*pair, marks=pytest.mark.full) for pair in OTHER_PARTS)],
)
def test_only_what_is_needed(tmp_path, processes, saved_by, restored_by):
    """Each process may restore only its own part of a tensor, however it was sharded before."""
    save_all(tmp_path, processes(saved_by))
    group = processes(restored_by)

    def restore(rank):
        mine = rows(rank, restored_by)
        checkpoints = Checkpoints(tmp_path, **group.arguments(rank))
        restored = checkpoints.restore(part=lambda name, shape: mine if shape == GLOBAL.shape else None)
        return all(np.array_equal(restored.tensors[name], GLOBAL[mine]) for name in ("rows", "columns"))

    assert group.run(restore) == [True] * restored_by


def test_files_that_are_not_needed_are_not_read(tmp_path, processes, monkeypatch):
    """A process alone that asks for the first rows reads the file that has them, and no other data."""

    def save(rank):
        own = {"rows": state(rank, 4)["rows"]}
        Checkpoints(tmp_path, **group.arguments(rank)).save(1, own)

    group = processes(4)
    group.run(save)
    opened = []
    real = _reading.open_file
    monkeypatch.setattr(_reading, "open_file", lambda path: (opened.append(path.name), real(path))[1])
    restored = Checkpoints(tmp_path).restore(part=lambda name, shape: (slice(0, 2),))

    assert np.array_equal(restored.tensors["rows"], GLOBAL[:2])
    assert opened == ["manifest.json", "part-00000.safetensors"]


@settings(deadline=None)
@given(data=st.data())
def test_any_boxes(tmp_path_factory, data):
    """A tensor cut into any grid of boxes is put together again, and any box of it can be asked for."""
    shape = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple))
    whole = np.arange(np.prod(shape), dtype=np.int64).reshape(shape)
    cuts = [sorted({0, size, *data.draw(st.lists(st.integers(0, size), max_size=2))}) for size in shape]
    grid = [[slice(a, b) for a, b in itertools.pairwise(axis)] for axis in cuts]
    boxes = [()]
    for axis in grid:
        boxes = [(*box, part) for box in boxes for part in axis]
    wanted = tuple(slice(*sorted(data.draw(st.tuples(st.integers(0, n), st.integers(0, n))))) for n in shape)
    directory = tmp_path_factory.mktemp("boxes")
    barrier = threading.Barrier(len(boxes))

    def save(rank):
        checkpoints = Checkpoints(directory, process_id=rank, num_processes=len(boxes), barrier=barrier.wait)
        checkpoints.save(0, {"a": Shard(whole[boxes[rank]], boxes[rank], shape)})

    threads = [threading.Thread(target=save, args=(rank,)) for rank in range(len(boxes))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert np.array_equal(Checkpoints(directory).restore().tensors["a"], whole)
    part = Checkpoints(directory).restore(part=lambda name, shape: wanted)
    assert np.array_equal(part.tensors["a"], whole[wanted])


@pytest.mark.parametrize(
    ("index", "shape", "message"),
    [
        ((slice(0, 3),), (8, 2), r"has the shape \(3, 2\), this one has \(2, 2\)"),
        ((slice(0, 2), slice(None), slice(None)), (8, 2), "3 slices for a tensor of 2 axes"),
        ((slice(7, 9),), (8, 2), r"slice\(7, 9, None\) of an axis of 8"),
        ((slice(0, 4, 2),), (8, 2), "no step"),
        ((slice(-2, None),), (8, 2), "0 <= start <= stop <= 8"),
    ],
)
def test_a_shard_that_does_not_fit(index, shape, message):
    """A shard whose shape or place makes no sense is refused at once."""
    with pytest.raises(ValueError, match=message):
        Shard(np.zeros((2, 2)), index, shape)


def test_a_shard_placed_with_numpy_integers(tmp_path):
    """Where a shard lies may be computed with NumPy, whose integers JSON cannot hold."""
    rows, columns = np.array(GLOBAL.shape)
    whole = Shard(GLOBAL, (slice(rows - rows, rows), slice(None)), (rows, columns))
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, {"a": whole})

    assert np.array_equal(checkpoints.restore().tensors["a"], GLOBAL)


def pieces_that_do_not_fit(kind, rank):
    """Return what process `rank` of two gives wrong."""
    mine = rows(rank, 2)
    whole = (slice(0, ROWS),)
    return {
        "hole": {} if rank else {"a": Shard(GLOBAL[mine], mine, GLOBAL.shape)},
        "overlap": {"a": Shard(GLOBAL, whole, GLOBAL.shape)},
        "shape": {"a": Shard(GLOBAL[mine], mine, (ROWS + rank, COLUMNS))},
        "type": {"a": Shard(GLOBAL[mine].astype(np.float64 if rank else np.float32), mine, GLOBAL.shape)},
    }[kind]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("hole", r"have 30 of 60 elements of \(12, 5\)"),
        ("overlap", "have 120 of 60 elements"),
        ("shape", "tensor 'a' differs between processes"),
        ("type", "tensor 'a' differs between processes"),
    ],
)
def test_shards_that_do_not_fit_together(tmp_path, processes, kind, message):
    """Shards with a hole, an overlap or different forms are not committed, and every process hears of it."""
    group = processes(2)

    def save(rank):
        Checkpoints(tmp_path, **group.arguments(rank)).save(1, pieces_that_do_not_fit(kind, rank))

    errors = group.run(save)

    assert [type(error) for error in errors] == [CheckpointError] * 2
    with pytest.raises(CheckpointError, match=message):
        raise errors[0]
    assert "another process failed, its own message says why" in str(errors[1])
    assert names(tmp_path) == []


def test_overlap_and_hole_of_equal_size(tmp_path, processes):
    """Two shards at the same place are seen, though the number of elements is right."""
    group = processes(2)
    mine = rows(0, 2)

    def save(rank):
        Checkpoints(tmp_path, **group.arguments(rank)).save(1, {"a": Shard(GLOBAL[mine], mine, GLOBAL.shape)})

    with pytest.raises(CheckpointError, match="the pieces of 'a' overlap"):
        raise group.run(save)[0]


@pytest.mark.parametrize("background", [False, True], ids=["now", "background"])
@pytest.mark.parametrize("failing", [0, 1, 2])
def test_one_process_cannot_write(tmp_path, processes, monkeypatch, failing, background):
    """When one process cannot write, all raise and name the cause or who knows it, and the checkpoint before stays."""
    group = processes(3)
    save_all(tmp_path, group)
    write = _files.write_part

    def refuse(path, *arguments):
        if path.name == f"part-{failing:05d}.safetensors" and "step-0000000002" in str(path):
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return write(path, *arguments)

    monkeypatch.setattr(_files, "write_part", refuse)

    def save(rank):
        checkpoints = Checkpoints(tmp_path, **group.arguments(rank))
        checkpoints.restore()
        try:
            checkpoints.save(2, state(rank, 3), background=background)
            checkpoints.wait()
        except CheckpointError as error:
            checkpoints.save(3, state(rank, 3, 3))
            return str(error), checkpoints.restore().step
        return None

    messages, steps = zip(*group.run(save), strict=True)

    assert "No space left on device; it needs" in messages[failing]
    assert "kept: step 1" in messages[failing]
    for rank in {0, 1, 2} - {failing}:
        who = f"process {failing} of 3 did not write its part" if rank == 0 else "another process failed"
        assert who in messages[rank]
    assert steps == (3, 3, 3)
    assert names(tmp_path) == ["step-0000000001", "step-0000000003"]


def test_one_process_has_a_bad_tensor(tmp_path, processes):
    """A value that one process cannot store does not leave the others waiting."""
    group = processes(2)

    def save(rank):
        Checkpoints(tmp_path, **group.arguments(rank)).save(1, {"a": np.zeros(2) if rank == 0 else 1.5})

    errors = group.run(save)

    assert "process 1 of 2 did not write its part" in str(errors[0])
    assert "found float" in str(errors[1])


def test_process_0_cannot_begin(tmp_path, processes):
    """When process 0 refuses a save, the others say that it did not begin."""
    group = processes(2)
    save_all(tmp_path, group, (5,))

    errors = save_all(tmp_path, group, (4,))

    assert "already has step 5" in str(errors[0])
    assert "process 0 did not begin it" in str(errors[1])


def test_a_process_dies_before_the_commit(tmp_path, processes):
    """When a process dies before it has written, the barrier fails and nothing is committed; the next save is whole."""
    group = processes(2)
    save_all(tmp_path, group)

    def save(rank):
        checkpoints = Checkpoints(tmp_path, **group.arguments(rank))
        checkpoints.restore()
        if rank == 1:
            checkpoints._barrier()
            group.barrier.abort()
            return None
        return checkpoints.save(2, state(rank, 2))

    error, _ = group.run(save)

    assert isinstance(error, threading.BrokenBarrierError)
    assert len(list(tmp_path.glob("step-0000000002.*.partial"))) == 1
    assert Checkpoints(tmp_path).restore().step == 1
    again = processes(2)
    assert save_all(tmp_path, again, (3,)) == [[1, 3]] * 2
    assert names(tmp_path) == ["step-0000000001", "step-0000000003"]


def test_background_commits_without_another_call(tmp_path, processes):
    """A save in the background is committed as soon as all have written; no process has to call anything."""
    group = processes(2)
    done = threading.Barrier(2)

    def save(rank):
        checkpoints = Checkpoints(tmp_path, **group.arguments(rank))
        checkpoints.save(1, state(rank, 2), background=True)
        checkpoints._pending._thread.join()
        done.wait()
        steps = checkpoints.steps()
        done.wait()
        checkpoints.wait()
        return steps

    assert group.run(save) == [[1], [1]]


def test_two_jobs_in_one_directory(tmp_path):
    """Two jobs of one process each that save the same step at once never leave a mix; who fails says so."""
    together = threading.Barrier(2)

    def save(number):
        for round_ in range(20):
            tensors = {name: np.full(1000, number) for name in "ab"}
            checkpoints = Checkpoints(tmp_path / str(round_))
            together.wait()
            with contextlib.suppress(CheckpointError):
                checkpoints.save(1, tensors, {"job": number})

    threads = [threading.Thread(target=save, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    restored = [Checkpoints(tmp_path / str(round_)).restore() for round_ in range(20)]
    found = [each for each in restored if each]
    assert found
    assert all(np.all(array == each.metadata["job"]) for each in found for array in each.tensors.values())


def test_damage_found_by_process_0_binds_all(tmp_path, processes):
    """All processes pass over what process 0 finds damaged, also where only another process's file is."""
    group = processes(4)
    save_all(tmp_path, group, (1, 2))
    path = tmp_path / "step-0000000002" / "part-00003.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    part = {"part": lambda name, shape: (slice(0, 1),)}

    assert [restored.step for restored in restore_all(tmp_path, group, **part)] == [1] * 4


def test_another_model_on_all_processes(tmp_path, processes):
    """All processes raise when the checkpoint is of another model; none waits."""
    group = processes(2)
    save_all(tmp_path, group)

    errors = restore_all(tmp_path, group, expect={"other": (3,)})

    assert "not of this model: it lacks other" in str(errors[0])
    assert [type(error) for error in errors] == [CheckpointError] * 2


def test_nothing_to_restore_on_all_processes(tmp_path, processes):
    """Where there is nothing, all processes get None."""
    assert restore_all(tmp_path / "new", processes(3)) == [None] * 3
