"""What a simulation returns, prints and writes."""

from __future__ import annotations

import os
import random
import sys
from collections import defaultdict

import pytest

from srunbook import simulate
from srunbook.simulate._processes import Collector


@pytest.fixture
def fifo(tmp_path):
    """Make a pipe with a name: opening it waits for the other side."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path


def test_output_is_ordered_by_rank(fifo):
    """The captured output has one rank after the other, though rank 0 prints last."""
    script = 'test $SLURM_PROCID = 1 || read word < "$0"; echo a; echo b; test $SLURM_PROCID = 0 || echo go > "$0"'

    result = simulate.run(["sh", "-c", script, fifo], nodes=2)

    assert result.output == "[0] a\n[0] b\n[1] a\n[1] b"
    assert result.returncode == 0
    assert result.failure == ""
    assert result.first_failure is None


def test_lines_come_while_the_program_runs(fifo, monkeypatch):
    """A line is echoed as soon as it is complete: the program ends only after its line was seen."""

    class Watching:
        encoding = "utf-8"

        def write(self, text):
            if text == "[0] ready\n":
                fifo.write_text("seen\n")

        def flush(self):
            pass

    monkeypatch.setattr("sys.stdout", Watching())

    assert simulate.run(["sh", "-c", 'echo ready; read word < "$0"', fifo], echo=True).returncode == 0


def test_no_byte_is_lost():
    """However the bytes arrive, the lines are those of the whole."""
    data = b"\n" * 1000 + b"\xff\xfe\x00\r\n\xf0\x9f\n" * 1000 + random.Random(0).randbytes(300_000) + b"\xf0\x9f"
    collector, sizes, start = Collector(0, label=True, echo=False, keep=None, log=None), random.Random(1), 0
    while start < len(data):
        end = start + sizes.randrange(1, sizes.choice([1000, 200_000]))
        collector.take("stdout", data[start:end])
        start = end
    collector.finish()

    assert "\n".join(line for _, line in collector.lines) == data.decode(errors="replace")


def test_only_the_last_lines_are_kept():
    """With keep_lines only that many of the last lines stay in the result."""
    result = simulate.run(["printf", "a\\nb\\nc\\n"], keep_lines=2)

    assert result.ranks[0].output == "b\nc"


def test_failure_with_a_long_line():
    """The last lines of a failed rank are shown again, but not megabytes of them."""
    program = "import sys; print('x' * 10_000_000); print('the reason'); sys.exit(3)"

    result = simulate.run([sys.executable, "-c", program])

    assert result.failure.endswith("[0] the reason")
    assert len(result.failure) < 10_000
    assert len(result.ranks[0].stdout) == 10_000_011


def test_many_processes_at_once(program, capsys):
    """Eight processes write long and short lines at once: each line has its label, and nothing is mixed or lost."""
    command = program(
        """
        import os, sys
        letter = "abcdefgh"[int(os.environ["SLURM_PROCID"])]
        for number in range(20):
            sys.stdout.write(letter * 3 + "\\n" + letter * 100_000 + "\\n")
        sys.stdout.write(letter)
        """
    )

    simulate.run(command, ntasks_per_node=8, echo=True)

    found = defaultdict(str)
    for line in capsys.readouterr().out.splitlines():
        label, _, text = line.partition(" ")
        found[label] += text
    assert found == {f"[{rank}]": letter * (20 * 100_003 + 1) for rank, letter in enumerate("abcdefgh")}


def test_output_dir(tmp_path):
    """Each rank's whole output is written to its file, unlabelled, and logs of an earlier run are gone."""
    logs = tmp_path / "new" / "logs"
    logs.mkdir(parents=True)
    (logs / "rank-7.log").write_text("earlier")
    (logs / "rank-notes.log").write_text("mine")

    simulate.run(["sh", "-c", "echo $SLURM_PROCID; printf '\\377'"], nodes=2, output_dir=logs, keep_lines=0)

    assert {path.name for path in logs.iterdir()} == {"rank-0.log", "rank-1.log", "rank-notes.log"}
    assert (logs / "rank-1.log").read_bytes() == b"1\n\xff"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ntasks_per_node": "2.5"}, r"'2.5' is no count.*'4\(x2\),3'"),
        ({"nodes": 2, "ntasks_per_node": "4(x2),3"}, "has 3 nodes, but 2 were asked for"),
        ({"nodes": 2, "ntasks_per_node": 33}, "66 tasks were asked for; the simulation runs 64 at most"),
    ],
)
def test_bad_input(changes, message, tmp_path):
    """Bad input is refused with the value and what is allowed, before anything is written."""
    with pytest.raises(simulate.SimulationError, match=message):
        simulate.run(["true"], output_dir=tmp_path / "logs", **changes)

    assert not (tmp_path / "logs").exists()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["no-such-program"], "cannot execute 'no-such-program': it is no executable file, and in no folder of PATH"),
        (["./train.py"], "cannot execute './train.py': .* python ./train.py"),
    ],
)
def test_command_not_found(command, message, tmp_path, monkeypatch):
    """A command that cannot be executed is found before the start, and the message says what to try."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print(1)")

    with pytest.raises(simulate.SimulationError, match=message):
        simulate.run(command, nodes=2)


def test_a_program_the_system_refuses(tmp_path):
    """A file that is executable but no program ends its tasks with 2, as srun's do."""
    path = tmp_path / "empty-interpreter"
    path.write_text("#!/no/such/interpreter\n")
    path.chmod(0o755)

    result = simulate.run([path])

    assert result.returncode == 2
    assert "cannot execute" in result.ranks[0].stderr
