"""The rungs of the JAX guide: each computes what one device computes, on any number of processes, and resumes."""

from __future__ import annotations

import fcntl
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import programs
from support.accidents import flip_a_bit, signal_at_import

from recordings import read_recording, recording_path
from recordings.comparing import Mask
from srunbook import simulate
from srunbook.ranklog import RankStart, parse_rank_lines
from srunbook.simulate import Result

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "jax_multinode"
RUNGS = ("one_device.py", "data_parallel.py", "resume.py", "requeue.py", "less_memory.py")

TOLERANCE = 1e-3
"""Largest relative difference of a loss on one device and on many: float32 sums in another order, 100 steps on."""

BFLOAT16 = 0.05
"""The same for a program that computes in 16 bits."""

pytestmark = pytest.mark.usefixtures("compiled_once")


@pytest.fixture
def edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Write a rung into an empty folder that is the current one, with lines changed; return its path."""
    monkeypatch.chdir(tmp_path)

    return lambda name, *changes: programs.edited(EXAMPLES / name, tmp_path, changes)


def run(program: Path, **layout: Any) -> Result:
    """Run a rung in the simulation; it has to succeed."""
    result = simulate.run([sys.executable, program], **layout)
    assert result.returncode == 0, f"{result.failure}\n{result.output}"
    return result


def losses(output: str) -> dict[int, float]:
    """Losses that a rung printed, by step."""
    return {int(step): float(loss) for step, loss in re.findall(r"step (\d+): loss (\S+)", output)}


@pytest.fixture(scope="module")
def of_one_device(tmp_path_factory: pytest.TempPathFactory) -> dict[int, float]:
    """Compute the oracle: the losses of the program that knows nothing of processes."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / "one_device.py"],
        cwd=tmp_path_factory.mktemp("one"),
        capture_output=True,
        text=True,
        check=True,
    )
    return losses(done.stdout)


def test_comparison_sees_a_process_that_repeats_the_rows_of_another(edited: Any, of_one_device: Any) -> None:
    """Where all processes take the first rows, the losses differ by far more than the tolerance."""
    program = edited("data_parallel.py", ("rows[rank * mine : (rank + 1) * mine]", "rows[:mine]"))
    found = losses(run(program, nodes=2).output)

    assert max(abs(found[step] / loss - 1) for step, loss in of_one_device.items()) > 10 * TOLERANCE


def test_batch_that_does_not_divide_takes_the_largest_equal_share(edited: Any) -> None:
    """Three devices train on 63 rows and say so in one line, as they say that they are no GPUs."""
    result = run(edited("data_parallel.py"), nodes=1, gpus_per_node=3)

    assert result.output.count("each step: 3 devices x 21 images = 63") == 1
    assert result.output.count("warning: Slurm gave this job GPUs and JAX sees none") == 1
    assert losses(result.output)[100] < 1


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, of_one_device: dict[int, float]) -> dict[str, np.ndarray]:
    """Train on two processes without a break, with the losses of one device; return the parameters."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        result = run(EXAMPLES / "data_parallel.py", nodes=2)
    assert losses(result.output) == pytest.approx(of_one_device, rel=TOLERANCE)
    return dict(np.load(folder / "model.npz"))


def check_model(folder: Path, whole: dict[str, np.ndarray]) -> None:
    """Check that a folder holds the very parameters of the training without a break."""
    model = np.load(folder / "model-simulation.npz")
    assert set(model) == set(whole)
    for name, value in whole.items():
        np.testing.assert_array_equal(model[name], value, strict=True)


SYNC = """        if own[0].platform == "cpu":"""
"""A line at which every process comes by at each step."""

HEARD = """\
        if step == 63:
            rank == world_size - 1 and os.kill(os.getpid(), signal.SIGNAL)
            told and os.kill(os.getpid(), signal.SIGTERM)
            jax._src.distributed.global_state.client.blocking_key_value_get("RECEIVED_PREEMPTION_NOTICE", 60_000)
"""
"""The last process gets a signal, and all wait until JAX has told them: its listener looks once a second."""

READ = "abstract_state=(params, checksum(params))"

UNREADABLE = f"abstract_state=params if jax.process_index() == 1 and step == 40 else {READ.partition('=')[2]}"
"""Process 1 asks for something that checkpoint 40 doesn't hold."""


def test_training_with_a_full_disk_and_a_stop_ends_with_the_bits_of_one_run(
    edited: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: dict[str, np.ndarray]
) -> None:
    """A failed save ends all, what one process cannot read none does, and signals stop both after the same step."""
    again = "kill -USR1 $$; kill -TERM $$"  # the job's next signals
    commands = programs.stand_ins(tmp_path, scontrol=f'{again}; echo "$@" "$SLURM_JOB_ID" >> {tmp_path}/called')
    monkeypatch.setenv("PATH", str(commands), prepend=":")
    checkpoints = tmp_path / "checkpoints" / "resume-simulation"

    # The disk of process 1 is full when it saves step 60: no file may grow beyond 4 KiB.
    full = "        step == 60 and rank == 1 and resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
    failed = simulate.run(
        [sys.executable, edited("resume.py", (SYNC, full + SYNC), ("import os\n", "import os\nimport resource\n"))],
        nodes=2,
    )
    left = sorted(path.name for path in checkpoints.iterdir() if path.name.isdigit())
    for name in ("99", "40.tar", "40-good"):  # what somebody else has put there
        (checkpoints / name).touch()
    continued = run(edited("resume.py", (READ, UNREADABLE)), nodes=2)
    (tmp_path / "model-simulation.npz").unlink()
    stopped = run(edited("requeue.py", (SYNC, HEARD.replace("SIGNAL", "SIGUSR1") + SYNC)), nodes=2)

    assert failed.returncode != 0
    assert "error: cannot save in" in failed.ranks[1].output
    assert "File too large" in failed.ranks[1].output
    assert "step 60: loss" in failed.output
    assert left == ["20", "40"]
    assert "checkpoint 40 cannot be read: bytes have changed, or another process" in continued.ranks[0].output
    assert "checkpoint 40 cannot be read: ValueError" in continued.ranks[1].output
    assert continued.output.count("resumed after step 20") == 1
    assert sorted(path.name for path in checkpoints.iterdir()) == ["100", "40-good", "40.tar", "80", "99"]
    assert "resumed" not in stopped.output
    (step,) = re.findall(r"stopped after step (\d+): saved, back to the queue", stopped.output)
    assert not [*tmp_path.glob("model*.npz")]
    word, identity, same = (tmp_path / "called").read_text().split()
    assert (word, identity) == ("requeue", same)

    saved = tmp_path / "checkpoints" / "requeue-simulation" / step
    flip_a_bit(max(saved.rglob("d/*"), key=lambda path: path.stat().st_size))
    ended = run(edited("requeue.py"), nodes=2)

    assert ended.output.count(f"checkpoint {step} cannot be read: bytes have changed") == 2
    assert ended.output.count("resumed after step 60\n") == 1
    assert len((tmp_path / "called").read_text().splitlines()) == 1
    check_model(tmp_path, whole)


def test_second_job_in_a_folder_ends_at_once(edited: Any, tmp_path: Path) -> None:
    """While another process holds the lock, the program trains nothing."""
    (tmp_path / "checkpoints").mkdir()
    with (tmp_path / "checkpoints" / "resume-run.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = subprocess.run([sys.executable, edited("resume.py")], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert re.search(r"^error: another job is training in \S+: wait for it$", done.stderr, re.MULTILINE)
    assert "Traceback" not in done.stderr


def test_stop_without_scontrol_asks_to_submit_again(edited: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside an image without scontrol, a program told while it imports JAX saves, and promises no requeue."""
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    early = ("import os\n", f"{signal_at_import('jax')}import os\n")
    result = run(edited("requeue.py", early, (SYNC, HEARD.replace("signal.SIGNAL", "0") + SYNC)), nodes=1)

    assert re.search(r"stopped after step \d+: saved, submit again: no scontrol here$", result.output, re.MULTILINE)


def test_training_resumes_on_fewer_devices(edited: Any, of_one_device: dict[int, float]) -> None:
    """What two processes with two devices each have saved, one process with one device loads; all losses agree."""
    result = run(edited("resume.py", ("STEPS = 100", "STEPS = 60")), nodes=2, gpus_per_node=2)
    starts = [line for line in parse_rank_lines(result.output.splitlines()) if isinstance(line, RankStart)]
    again = run(edited("resume.py"), nodes=1)

    assert sorted(start.rank for start in starts) == [0, 1]
    assert "each step: 4 devices x 16 images = 64" in result.ranks[0].output
    assert "step" not in result.ranks[1].output
    assert "warning" not in result.ranks[1].output
    assert again.output.count("resumed after step 60") == 1
    found = losses(result.output) | losses(again.output)
    assert list(found) == [20, 40, 60, 80, 100]
    assert found == pytest.approx(of_one_device, rel=TOLERANCE)


def test_less_memory_learns_the_same(edited: Any, of_one_device: dict[int, float]) -> None:
    """Pieces, recomputation and donated parameters change no loss, and a batch takes shares that the pieces divide."""
    program = edited(
        "less_memory.py", ("PRECISION = jnp.bfloat16", "PRECISION = jnp.float32"), ("PIECES = 2", "PIECES = 4")
    )
    result = run(program, nodes=2)

    assert losses(result.output) == pytest.approx(of_one_device, rel=TOLERANCE)


def test_compiler_finds_less_memory_with_pieces_and_recomputation(reader: Any) -> None:
    """Each change alone needs less memory than none, and both together need least."""
    (command,) = reader.commands(EXAMPLES / "step_memory.py")
    run = reader.run(EXAMPLES / "step_memory.py", command)
    none, pieces, recomputation, both = (int(mib) for mib in re.findall(r"(\d+) MiB", run.text))

    assert both < min(pieces, recomputation) < max(pieces, recomputation) < none
    assert both < none / 8
    reader.compare(EXAMPLES / "step_memory.py", run, lambda line: True, [Mask(r"\d+ MiB", "<n>", "compilers differ")])


@pytest.mark.parametrize("rung", RUNGS)
def test_recording_has_the_losses_of_one_device(rung: str, of_one_device: dict[int, float]) -> None:
    """What a rung printed when it was recorded has the losses of one device."""
    text = read_recording(recording_path(EXAMPLES / rung)).text

    assert losses(text) == pytest.approx(of_one_device, rel=BFLOAT16 if rung == "less_memory.py" else TOLERANCE)
    assert "warning" not in text
