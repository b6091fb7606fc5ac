"""Random damages: what is restored is always what was saved, of one step, and the best that is left."""

from __future__ import annotations

import logging
import random
import re
import shutil

import numpy as np
import pytest

from srunbook.checkpoint import CheckpointError, Checkpoints, Shard, _manifest

STEPS = (10, 20, 30)
DAMAGES = 1000
SEED = 20
SOME = 100
"""Damages of a test without `--full`: each of the eleven kinds occurs several times."""


def state(step):
    """Make a state in which every value tells the step."""
    generator = np.random.default_rng(step)
    return {
        "weight": generator.standard_normal((8, 6), np.float32),
        "moment": generator.standard_normal(5),
        "rows": generator.integers(0, 1 << 60, (6, 2)),
        "count": np.array(step),
    }


def metadata(step):
    """Make metadata that tell the step."""
    return {"epoch": step, "loss": step / 7, "lr": [step * 1e-3]}


@pytest.fixture(scope="module")
def saved(tmp_path_factory, processes):
    """Save three checkpoints, each of two files, as two processes write them."""
    directory = tmp_path_factory.mktemp("saved")
    pair = processes(2)

    def save(rank):
        checkpoints = Checkpoints(directory, **pair.arguments(rank))
        for step in STEPS:
            part = slice(4 * rank, min(4 * rank + 4, 6))
            tensors = state(step)
            tensors["rows"] = Shard(tensors["rows"][part], (part,), (6, 2))
            checkpoints.save(step, tensors, metadata(step))
        return checkpoints.steps()

    assert pair.run(save) == [[*STEPS]] * 2
    return directory


def files(directory):
    """List all files of all steps."""
    return sorted(path for path in directory.rglob("*") if path.is_file())


class Damage:
    """Do one random damage to a copy of the directory.

    Args:
        seed: What decides everything.
        directory: The copy.
    """

    def __init__(self, seed, directory):
        self.random = random.Random(seed)
        self.directory = directory
        self.touched = set()
        self.kind = self.random.choice(
            ["truncate", "extend", "flip", "zero", "delete", "swap", "overwrite", "half", "rename", "copy", "mix"]
        )
        for _ in range(self.random.choice([1, 1, 1, 2, 3])):
            getattr(self, self.kind)()

    def folder(self):
        """Choose a random directory, which counts as touched."""
        found = self.random.choice(sorted(path for path in self.directory.iterdir()))
        self.touched.add(found.name)
        return found

    def file(self):
        """Choose a random file; its directory counts as touched."""
        found = self.random.choice(files(self.directory))
        self.touched.add(found.parent.name)
        return found

    def truncate(self):
        """End a file early."""
        path = self.file()
        data = path.read_bytes()
        path.write_bytes(data[: self.random.randrange(max(len(data), 1))])

    def extend(self):
        """Append something to a file."""
        path = self.file()
        path.write_bytes(path.read_bytes() + self.random.randbytes(self.random.randint(1, 64)))

    def flip(self):
        """Flip a few bits."""
        path = self.file()
        data = bytearray(path.read_bytes())
        for _ in range(self.random.choice([1, 1, 5])):
            if data:
                data[self.random.randrange(len(data))] ^= 1 << self.random.randrange(8)
        path.write_bytes(data)

    def zero(self):
        """Write a range of zeros, as a lost block leaves it."""
        path = self.file()
        data = bytearray(path.read_bytes())
        first = self.random.randrange(max(len(data), 1))
        last = min(first + self.random.randint(1, 512), len(data))
        data[first:last] = bytes(last - first)
        path.write_bytes(data)

    def delete(self):
        """Delete a file."""
        if len(files(self.directory)) > 1:
            self.file().unlink()

    def swap(self):
        """Swap two files."""
        one, other = self.file(), self.file()
        kept = one.read_bytes()
        one.write_bytes(other.read_bytes())
        other.write_bytes(kept)

    def overwrite(self):
        """Put a file in the place of another."""
        one, other = self.file(), self.file()
        one.write_bytes(other.read_bytes())

    def half(self):
        """Begin a newer step, and leave it at that."""
        source = self.folder()
        target = self.directory / f"step-{self.random.choice([40, 50, 60]):010d}"
        target.mkdir(exist_ok=True)
        for path in sorted(source.iterdir()):
            data = path.read_bytes()
            if self.random.random() < 0.7:
                (target / path.name).write_bytes(data[: self.random.randrange(len(data) + 1)])

    def rename(self):
        """Swap two steps."""
        one, other = self.folder(), self.folder()
        aside = self.directory / "aside"
        one.rename(aside)
        if other.exists():
            other.rename(one)
        aside.rename(other)

    def copy(self):
        """Copy a step to a newer name."""
        shutil.copytree(self.folder(), self.directory / f"step-{self.random.randint(31, 99):010d}", dirs_exist_ok=True)

    def mix(self):
        """Put a data file of one step among those of another."""
        one, other = self.folder(), self.folder()
        data = [path for path in files(one) if path.suffix == ".safetensors"]
        if data:
            path = self.random.choice(data)
            (other / path.name).write_bytes(path.read_bytes())

    def best_left(self):
        """Return the newest step that was not touched."""
        return max((step for step in STEPS if f"step-{step:010d}" not in self.touched), default=None)


def is_right(restored):
    """Return whether a restored checkpoint is exactly that of its step."""
    wanted = state(restored.step)
    return (
        restored.step in STEPS
        and restored.metadata == metadata(restored.step)
        and restored.tensors.keys() == wanted.keys()
        and all(
            restored.tensors[name].dtype == array.dtype and np.array_equal(restored.tensors[name], array)
            for name, array in wanted.items()
        )
    )


def outcomes(saved, place, damages, wrong_is_error):
    """Restore after each damage; count what came of it."""
    counts = {"newest": 0, "older": 0, "none": 0, "wrong": 0}
    for number in range(damages):
        directory = place / str(number)
        shutil.copytree(saved, directory)
        damage = Damage(SEED * DAMAGES + number, directory)
        try:
            restored = Checkpoints(directory).restore()
        except Exception:
            if wrong_is_error:
                raise
            continue
        if restored and not is_right(restored):
            assert not wrong_is_error, f"damage {number} ({damage.kind}): a wrong step {restored.step}"
            counts["wrong"] += 1
        elif restored is None:
            counts["none"] += 1
        else:
            counts["newest" if restored.step == STEPS[-1] else "older"] += 1
        if wrong_is_error and (best := damage.best_left()):
            assert restored, f"damage {number} ({damage.kind}): step {best} is whole and was not restored"
            assert restored.step >= best, f"damage {number} ({damage.kind})"
        shutil.rmtree(directory)
    return counts


@pytest.mark.parametrize("damages", [SOME, pytest.param(DAMAGES, marks=pytest.mark.full)])
def test_damages(saved, tmp_path, caplog, damages):
    """After any of many damages one whole step is restored, and none that was spared is passed over."""
    caplog.set_level(logging.CRITICAL)
    counts = outcomes(saved, tmp_path, damages, wrong_is_error=True)

    assert sum(counts.values()) == damages
    assert counts["wrong"] == 0
    assert counts["newest"] > damages / 10
    assert counts["older"] > damages / 10


def test_damages_without_checksums(saved, tmp_path, caplog, monkeypatch):
    """With the comparison of checksums switched off, the same damages lead to wrong restores."""
    caplog.set_level(logging.CRITICAL)
    monkeypatch.setattr(_manifest, "agrees", lambda found, written: True)
    counts = outcomes(saved, tmp_path, SOME, wrong_is_error=False)

    assert counts["wrong"] > 0


def test_undamaged(saved):
    """The newest checkpoint is restored when nothing is damaged."""
    restored = Checkpoints(saved).restore()

    assert restored.step == 30
    assert is_right(restored)


def test_a_reader_that_is_wrong_is_seen(saved):
    """The check of this module tells a right restore from one with a single wrong value."""
    restored = Checkpoints(saved).restore()
    restored.tensors["rows"][5, 1] += 1

    assert not is_right(restored)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("part-00001.safetensors", lambda path: path.unlink(), r"part-00001.safetensors is missing"),
        (
            "part-00000.safetensors",
            lambda path: path.write_bytes(path.read_bytes()[:-1]),
            r"has [\d,]+ bytes; [\d,]+ w",
        ),
        (
            "part-00001.safetensors",
            lambda path: path.write_bytes(path.read_bytes()[::-1]),
            r"has the SHA-256 \w+\.\.\.;",
        ),
        ("manifest.json", lambda path: path.write_bytes(path.read_bytes().replace(b"weight", b"veight")), "not agree"),
        ("manifest.json", lambda path: path.write_bytes(b'{"sha256'), "manifest.json is not what was written"),
    ],
)
def test_the_message(saved, tmp_path, caplog, name, change, message):
    """The warning names the step, the file and what is wrong with it."""
    shutil.copytree(saved, tmp_path, dirs_exist_ok=True)
    change(tmp_path / "step-0000000030" / name)

    assert Checkpoints(tmp_path).restore().step == 20
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.name == "srunbook.checkpoint"
    assert record.getMessage().startswith(f"step 30 is damaged and is passed over: {tmp_path}/step-0000000030/{name}")
    assert re.search(message, record.getMessage())


def test_process_that_disagrees(saved, tmp_path, processes):
    """A process that finds damaged what process 0 chose raises; it does not fall back by itself."""
    shutil.copytree(saved, tmp_path, dirs_exist_ok=True)
    pair = processes(2)
    path = tmp_path / "step-0000000030" / "part-00000.safetensors"

    def damaging(rank):
        pair.barrier.wait()
        if rank == 1 and list(tmp_path.glob(".restore-*.json")):
            path.write_bytes(path.read_bytes()[:-1] + b"?")

    def restore(rank):
        arguments = pair.arguments(rank) | {"barrier": lambda: damaging(rank)}
        return Checkpoints(tmp_path, **arguments).restore()

    zero, one = pair.run(restore)

    assert zero.step == 30
    with pytest.raises(CheckpointError, match=r"process 1 cannot restore what process 0 chose: .*SHA-256"):
        raise one
    assert Checkpoints(tmp_path).restore().step == 20


def test_all_processes_say_why(saved, tmp_path, processes):
    """Where process 0 cannot restore, the others say the reason that it had; the folder is as it was."""
    shutil.copytree(saved, tmp_path, dirs_exist_ok=True)
    before = sorted(path.name for path in tmp_path.iterdir())
    pair = processes(2)
    problems = pair.run(lambda one: Checkpoints(tmp_path, **pair.arguments(one)).restore(expect={"other": (3,)}))

    assert [type(problem) for problem in problems] == [CheckpointError, CheckpointError]
    assert str(problems[1]) == f"process 0 cannot restore: {problems[0]}"
    assert "other" in str(problems[0])
    assert sorted(path.name for path in tmp_path.iterdir()) == before
