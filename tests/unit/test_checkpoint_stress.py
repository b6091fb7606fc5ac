"""Two jobs that save to one directory as fast as they can, while two others read it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

STRESS = """
import json, os, sys, threading, time
import numpy as np
from srunbook.checkpoint import CheckpointError, Checkpoints, Shard

place, count, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
deadline = time.monotonic() + seconds

def check(restored, report):
    values = {int(value) for array in restored.tensors.values() for value in np.unique(array)}
    if values != {restored.metadata["token"]}:
        report["mixed"].append([restored.step, restored.metadata["token"], *values])

def write(rank, barrier, report):
    rows = slice(50 * rank, 50 * rank + 50)
    checkpoints = None

    def tried(function):
        # As in a job, none continues when one has failed.
        failed[rank] = None
        try:
            result = function()
        except CheckpointError as error:
            failed[rank] = str(error)
        barrier()
        said = [text for text in failed if text]
        barrier()
        if not said:
            return result
        if rank == 0:
            report["refused"].append(" / ".join(said))

    while True:
        if rank == 0:
            shared["going"] = time.monotonic() < deadline
            shared["token"] += 1
        barrier()
        token, going = shared["token"], shared["going"]
        barrier()
        if not going:
            return
        if checkpoints is None:
            checkpoints = Checkpoints(place, 2, process_id=rank, num_processes=count, barrier=barrier)
            step = tried(lambda: restored_step(checkpoints, report))
        if step is None:
            checkpoints = None
            continue
        tensors = {"a": np.full(1000, token), "b": Shard(np.full(50, token), (rows,), (50 * count,))}
        step = tried(lambda: save(checkpoints, step + 1, tensors, token))
        report["saved"] += rank == 0 and step is not None
        checkpoints = checkpoints if step else None

def restored_step(checkpoints, report):
    restored = checkpoints.restore()
    if restored:
        check(restored, report)
    return restored.step if restored else 0

def save(checkpoints, step, tensors, token):
    checkpoints.save(step, tensors, {"token": token}, background=bool(token % 2))
    checkpoints.wait()
    return step

def read(report):
    while not Checkpoints(place).steps():
        time.sleep(0.001)
    while time.monotonic() < deadline:
        try:
            restored = Checkpoints(place).restore()
        except CheckpointError as error:
            report["refused"].append(str(error))
            continue
        report["restored"] += restored is not None
        report["nothing"] += restored is None
        if restored:
            check(restored, report)

children = []
for role in ("writer", "writer", "reader", "reader"):
    child = os.fork()
    if child:
        children.append(child)
        continue
    report = {"role": role, "pid": os.getpid(), "saved": 0, "restored": 0, "nothing": 0, "mixed": [], "refused": []}
    if role == "reader":
        read(report)
    else:
        shared, failed = {"token": os.getpid() * 1000000}, [None] * count
        barrier = threading.Barrier(count, timeout=60).wait
        others = [threading.Thread(target=write, args=(rank, barrier, report)) for rank in range(1, count)]
        for thread in others:
            thread.start()
        write(0, barrier, report)
        for thread in others:
            thread.join()
    with open(f"{place}.{os.getpid()}", "w") as stream:
        json.dump(report, stream)
    os._exit(0)
for child in children:
    os.waitpid(child, 0)
"""


LONG = [pytest.mark.full, pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    ("count", "seconds"), [(1, 2), (2, 2), pytest.param(1, 300, marks=LONG), pytest.param(2, 300, marks=LONG)]
)
def test_writers_and_readers(tmp_path, count, seconds):
    """Two jobs save to one directory as fast as they can, and two read: all that is read is whole and of one save."""
    directory = tmp_path / "saved"
    directory.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", STRESS, str(directory), str(count), str(seconds)],
        capture_output=True,
        text=True,
        timeout=3 * seconds + 60,
        check=True,
    )
    assert "Traceback" not in done.stderr, done.stderr
    reports = [json.loads(path.read_text()) for path in tmp_path.glob("saved.*")]
    assert len(reports) == 4, done.stderr
    writers = [report for report in reports if report["role"] == "writer"]
    readers = [report for report in reports if report["role"] == "reader"]

    assert not [report["mixed"][:3] for report in reports if report["mixed"]]
    assert any(writer["saved"] for writer in writers)
    assert all(reader["restored"] for reader in readers)
    assert not any(reader["nothing"] for reader in readers)
    for one, other in (writers, writers[::-1]):
        strangers = [
            said for said in one["refused"] if "was not saved" in said and f"process {other['pid']} on" not in said
        ]
        assert not strangers, strangers[:3]
