"""What a simulation returns, prints and writes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from srunbook import simulate


def test_output_is_ordered_by_rank(program):
    """The captured output has one rank after the other, though rank 0 prints last."""
    command = program(
        """
        import os, pathlib, sys, time
        rank = int(os.environ["SLURM_PROCID"])
        while rank == 0 and not pathlib.Path(sys.argv[1]).exists():
            time.sleep(0.01)
        print("first"); print("second")
        pathlib.Path(sys.argv[1]).touch()
        """
    )

    result = simulate.run([*command, command[1] + ".done"], nodes=2)

    assert result.output == "[0] first\n[0] second\n[1] first\n[1] second"
    assert result.returncode == 0
    assert result.failure == ""
    assert result.first_failure is None


def test_without_labels():
    """Without labels the lines are what was printed."""
    result = simulate.run(["echo", "x"], nodes=2, label=False)

    assert result.output == "x\nx"


def test_streams_are_kept_apart():
    """A rank's streams are kept apart, and its output has both."""
    result = simulate.run(["sh", "-c", "echo out; echo err >&2"], echo=False)

    rank = result.ranks[0]
    assert (rank.stdout, rank.stderr) == ("out", "err")
    assert sorted(rank.output.splitlines()) == ["err", "out"]


def test_echo_labels_live_lines(capsys):
    """Echoed lines carry the rank and go to the stream they came from."""
    simulate.run(["sh", "-c", "echo out; echo err >&2"], nodes=2, echo=True)

    captured = capsys.readouterr()
    assert sorted(captured.out.splitlines()) == ["[0] out", "[1] out"]
    assert sorted(captured.err.splitlines()) == ["[0] err", "[1] err"]


def test_lines_come_while_the_program_runs(program, monkeypatch):
    """A line is echoed as soon as it is complete: the program ends only after its line was seen."""
    command = program(
        """
        import pathlib, sys, time
        print("ready")
        while not pathlib.Path(sys.argv[1]).exists():
            time.sleep(0.01)
        """
    )
    seen = command[1] + ".seen"

    class Watching:
        encoding = "utf-8"

        def write(self, text):
            if text == "[0] ready\n":
                Path(seen).touch()

        def flush(self):
            pass

    monkeypatch.setattr("sys.stdout", Watching())

    result = simulate.run([*command, seen], echo=True)

    assert result.returncode == 0


@pytest.mark.parametrize(
    ("octal", "text"),
    [
        (r"no newline", "no newline"),
        (r"a\n\nb\n", "a\n\nb"),
        (r"\377\376\000x\n", "\ufffd\ufffd\x00x"),
        (r"\303\244\n", "ä"),
        (r"50%%\r100%%\n", "50%\r100%"),
        ("", ""),
    ],
)
def test_odd_output(octal, text):
    """Partial lines, empty lines, binary junk and carriage returns are taken as they come."""
    result = simulate.run(["printf", octal])

    assert result.ranks[0].output == text


def test_huge_output(program):
    """Four ranks that each print 20 MB on both streams, one line of it 10 MB long, neither block nor lose a byte."""
    command = program(
        """
        import sys
        sys.stdout.write("x" * 10_000_000 + "\\n")
        for number in range(100):
            sys.stderr.write("e" * 49_999 + "\\n")
            sys.stdout.write("o" * 49_999 + "\\n")
        """
    )

    result = simulate.run(command, nodes=2, ntasks_per_node=2)

    for rank in result.ranks:
        assert len(rank.stdout) == 10_000_000 + 100 * 50_000
        assert len(rank.stderr) == 100 * 50_000 - 1


def test_only_the_last_lines_are_kept():
    """With keep_lines only that many of the last lines stay in the result."""
    result = simulate.run(["seq", "1000"], keep_lines=3)

    assert result.ranks[0].output == "998\n999\n1000"


def test_background_processes_end_with_the_step(survivors):
    """What a task leaves running in the background is killed when the last task has ended, as by Slurm."""
    result = simulate.run(["sh", "-c", "sleep 3600 & setsid sleep 3600 & echo done"], nodes=2)

    assert result.output == "[0] done\n[1] done"
    assert result.returncode == 0
    assert survivors.find() == {}


def test_output_dir(tmp_path):
    """Each rank's whole output is written to its file, unlabelled, and logs of an earlier run are gone."""
    logs = tmp_path / "new" / "logs"
    logs.mkdir(parents=True)
    (logs / "rank-7.log").write_text("earlier")
    (logs / "rank-notes.log").write_text("mine")

    simulate.run(["sh", "-c", "echo $SLURM_PROCID; printf '\\377'"], nodes=2, output_dir=logs, keep_lines=0)

    assert {path.name for path in logs.iterdir()} == {"rank-0.log", "rank-1.log", "rank-notes.log"}
    assert (logs / "rank-1.log").read_bytes() == b"1\n\xff"


def test_output_dir_that_is_a_file(tmp_path):
    """A file in place of the directory is refused, and stays as it was."""
    path = tmp_path / "logs"
    path.write_text("mine")

    with pytest.raises(simulate.SimulationError, match=r"cannot write logs into .*logs.*--output-dir logs"):
        simulate.run(["true"], output_dir=path)

    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nodes": 0}, "the number of nodes is 0; it is 1 to 64, as in --nodes 2"),
        ({"nodes": -1}, "the number of nodes is -1"),
        ({"nodes": 65}, "the number of nodes is 65"),
        ({"ntasks_per_node": 0}, "tasks per node are 0; each node has 1 or more"),
        ({"ntasks_per_node": "-2"}, "tasks per node are -2"),
        ({"ntasks_per_node": "2.5"}, r"'2.5' is no count .*'4\(x2\),3'"),
        ({"ntasks_per_node": "2,0"}, "tasks per node are 2,0; each node has 1 or more"),
        ({"ntasks_per_node": "²"}, r"'²' is no count .*'4\(x2\),3'"),
        ({"ntasks_per_node": "\uff12"}, "is no count"),
        ({"ntasks_per_node": "9" * 5000}, "is no count"),
        ({"nodes": 2, "ntasks_per_node": "4(x2),3"}, "has 3 nodes, but 2 were asked for"),
        ({"nodes": 2, "ntasks_per_node": 33}, "66 tasks were asked for; the simulation runs 64 at most"),
        ({"cpus_per_task": 0}, "CPUs per task is 0; it is 1 or more"),
        ({"gpus_per_node": -1}, "GPUs per node is -1; it is 0 to 64, as in --gpus-per-node 4"),
        ({"gpus_per_node": 65}, "GPUs per node is 65; it is 0 to 64, as in --gpus-per-node 4"),
        ({"gpus_per_node": 10**8}, "GPUs per node is 100000000; it is 0 to 64"),
        ({"timeout": 0}, "time limit in seconds is 0; it is 0.001 or more, as in --timeout 60"),
        ({"timeout": float("nan")}, "time limit in seconds is nan"),
        ({"slurm": "21.08"}, "'21.08'; it is one of 22.05, 24.11, 26.05, as in --slurm 22.05"),
    ],
)
def test_bad_input(changes, message, tmp_path):
    """Bad input is refused with the value, what is allowed and an example, before anything is written."""
    with pytest.raises(simulate.SimulationError, match=message):
        simulate.run(["true"], output_dir=tmp_path / "logs", **changes)

    assert not (tmp_path / "logs").exists()


def test_an_empty_output_dir(tmp_path, monkeypatch):
    """An empty name of the directory is refused, and the logs in the current one stay."""
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "rank-7.log"
    log.touch()

    with pytest.raises(simulate.SimulationError, match=r"output directory is ''; .* as in --output-dir logs"):
        simulate.run(["true"], output_dir="")

    assert log.exists()


def test_a_removed_current_directory(tmp_path, monkeypatch):
    """In a directory that was removed nothing is started, and the message says what to do."""
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()

    with pytest.raises(simulate.SimulationError, match=r"the current directory is gone .* as in: cd"):
        simulate.run(["true"])


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ([], "no command was given; it follows two dashes"),
        ([""], "the command is an empty text; .* as in: -- python train.py"),
        (["no-such-program"], "command not found: 'no-such-program' is in no folder of PATH"),
        (["./no-such-program"], "command not found: './no-such-program' does not exist"),
        (["train.py"], "try: ./train.py or python train.py"),
        (["./train.py"], "cannot execute './train.py': it is no executable file; try: python ./train.py"),
        (["."], "is in no folder of PATH"),
        (["./"], "cannot execute './'"),
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


def test_a_simulation_inside_a_simulation():
    """A task may simulate: the inner tasks see their own step."""
    inner = "from srunbook import simulate; print(simulate.run(['sh', '-c', 'echo $SLURM_NTASKS'], nodes=2).output)"

    result = simulate.run([sys.executable, "-c", inner], nodes=1)

    assert result.output == "[0] [0] 2\n[0] [1] 2"
