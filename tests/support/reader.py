"""A reader of the pages: saves one program, runs it as its docstring says, and compares what it printed."""

from __future__ import annotations

import argparse
import ast
import hashlib
import importlib.metadata
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from recording_files import Recording, RecordingError, read_recording, recording_path, write_recording
from support.comparing import Mask, compare, masked
from support.library_lines import is_library_line, without_greetings
from support.ports import free_port

from srunbook import simulate

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Run:
    """What came of a command.

    Args:
        command: The command, as a reader types it.
        lines: What it printed, without the folders of this machine.
        status: Its exit status.
    """

    command: str
    lines: tuple[str, ...]
    status: int

    @property
    def text(self) -> str:
        """All lines in one."""
        return "\n".join(self.lines)


class Reader:
    """Do what a reader does: saves one program into a folder and runs it as its docstring says.

    Args:
        folder: An empty folder.
        record: Whether `compare` writes recordings.
        node_id: The test, for the command that records anew.
    """

    def __init__(self, folder: Path, record: bool, node_id: str) -> None:
        self.folder = folder
        self.record = record
        self.node_id = node_id

    @staticmethod
    def commands(program: Path) -> list[str]:
        """Commands at the top of a program that need no Slurm."""
        docstring = ast.get_docstring(ast.parse(program.read_text(encoding="utf-8"))) or ""
        found = re.findall(r"^ *((?:srunbook simulate|python|torchrun) .*?) *(?:#.*)?$", docstring, re.MULTILINE)
        return [" ".join(command.split()) for command in found]

    def run(self, program: Path, command: str, beside: Iterable[Path] = ()) -> Run:
        """Run a command of a program's docstring in a folder that holds nothing else.

        Args:
            program: The program.
            command: The command. The port 29400 in it stands for any that is free.
            beside: Files that the program needs beside it.
        """
        for path in (program, *beside):
            shutil.copy(path, self.folder)
        words = [word.replace(":29400", f":{free_port()}") for word in shlex.split(command)]
        start = next(place for place, word in enumerate(words) if word in ("python", "torchrun"))
        assert program.name in words[start:]
        launcher = ["-m", "torch.distributed.run"] if words[start] == "torchrun" else []
        argv = [sys.executable, *launcher, *words[start + 1 :]]
        here = Path.cwd()
        os.chdir(self.folder)
        try:
            if start:
                result = simulate.run(argv, **self.layout(words[2:start]))
                output, status = result.output, result.returncode
            else:
                output, status = self.alone(argv)
        finally:
            os.chdir(here)
        return Run(command, tuple(self.without_places(line) for line in output.splitlines()), status)

    @staticmethod
    def layout(options: list[str]) -> dict[str, int]:
        """Arguments of `simulate.run` for options of `srunbook simulate`."""
        parser = argparse.ArgumentParser()
        for name in ("--nodes", "--ntasks-per-node", "--gpus-per-node"):
            parser.add_argument(name, type=int, default=argparse.SUPPRESS)
        parser.add_argument(
            "--no-kill-on-bad-exit", dest="kill_on_bad_exit", action="store_false", default=argparse.SUPPRESS
        )
        return vars(parser.parse_args([option for option in options if option != "--"]))

    @staticmethod
    def alone(argv: list[str], **environ: str) -> tuple[str, int]:
        """Run a program as one plain process, outside of any job."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "JAX_"))}
        result = subprocess.run(
            argv,
            env={**own, **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return result.stdout, result.returncode

    def without_places(self, line: str) -> str:
        """Return a line without the folders of this machine, and with the text of a link in place of its address."""
        line = re.sub(r"\[(\w+)\]\(https?://[^)\s]*\)", r"\1", line)
        line = re.sub(r'[^"\s(]*/(site-packages/)', r"\1", line)
        line = re.sub(r'"/[^"\s]*/(lib/python3\.\d+/)', r'"\1', line)
        for place in (f"{self.folder}/", f"{sys.prefix}/bin/", f"{ROOT}/"):
            line = line.replace(place, "")
        return line

    def compare(self, program: Path, run: Run, keep: Callable[[str], bool], masks: Iterable[Mask]) -> None:
        """Compare a run with the recording beside the program, or writes the recording.

        Args:
            program: The program.
            run: What it printed now.
            keep: Which lines have to be the same, in any order, once for each time they differ.
            masks: What may vary in them.
        """
        sha256 = hashlib.sha256(program.read_bytes()).hexdigest()
        problem = self.difference(program, run, sha256, keep, masks)
        if problem and self.record:
            recording = Recording(
                command=run.command,
                where=self.where(run.command),
                date=datetime.now(UTC).date().isoformat(),
                source_sha256=sha256,
                output=run.lines,
                exit_code=run.status,
                versions={"python": sys.version.split()[0], **self.framework(program)},
            )
            write_recording(recording_path(program), recording)
            problem = self.difference(program, run, sha256, keep, masks)
        assert not problem, f"{problem}\nIf this is as it should be: python -m pytest '{self.node_id}' --record"

    @staticmethod
    def framework(program: Path) -> dict[str, str]:
        """Names and versions of the framework that a program imports, and of what it puts on top of it."""
        text = program.read_text(encoding="utf-8")
        used = re.findall(r"^import (jax|lightning|torch)\b", text, re.MULTILINE)[:1]
        used += re.findall(r"^from (accelerate|transformers) import ", text, re.MULTILINE)
        return {name: importlib.metadata.version(name) for name in used}

    @classmethod
    def difference(
        cls, program: Path, run: Run, sha256: str, keep: Callable[[str], bool], masks: Iterable[Mask]
    ) -> str | None:
        """Say in what a run differs from the recording beside the program."""
        try:
            recording = read_recording(recording_path(program))
        except RecordingError as error:
            return str(error)
        if (recording.source_sha256, recording.command) != (sha256, run.command):
            return f"the recording is of another version of {program.name}, or of another command"
        wrong = cls.wrong_stamp(program, run, recording)
        if wrong:
            return wrong
        told, said = without_greetings(recording.output), without_greetings(run.lines)
        recorded, printed = ([line for line in lines if keep(line)] for lines in (told, said))
        if run.status == 0:
            difference = compare(recorded, printed, masks, ordered=False)
            return difference or cls.never_printed(told, said, keep)
        # Which rank fails first is chance, and with it how often a message comes and what the platform says around it.
        return compare(*(sorted({masked(line, masks) for line in lines}) for lines in (recorded, printed)))

    @classmethod
    def wrong_stamp(cls, program: Path, run: Run, recording: Recording) -> str | None:
        """Say in what the stamp of a recording is not that of the run."""
        known = {"python": platform.python_version(), **cls.framework(program)}
        where = cls.where(run.command)
        if recording.where != where:
            return f"the recording says that {program.name} ran on {recording.where}: it ran as {where}"
        if recording.exit_code != run.status:
            return f"the recording has exit status {recording.exit_code}; the run ended with {run.status}"
        if recording.versions.keys() != known.keys():
            return f"the recording names the versions of {[*recording.versions]}, not of {[*known]}"
        for name, version in recording.versions.items():
            # Any Python from 3.11 on may compare; a build of torch for CPUs is the same torch.
            if name != "python" and version.split("+")[0] != known[name].split("+")[0]:
                return f"the recording is of {name} {version}; installed is {known[name]}"
        return None

    @staticmethod
    def where(command: str) -> str:
        """Where a command runs: a recording on Slurm is no business of a program, only of a job script."""
        return "simulation" if command.startswith("srunbook") else "process"

    @staticmethod
    def never_printed(recorded: Iterable[str], printed: Iterable[str], keep: Callable[[str], bool]) -> str | None:
        """Name recorded lines outside of the comparison that the run did not print and that are no noise.

        What stands on a page has to have been printed, be it essential or not. Numbers, hashes, addresses may differ.
        """

        def shape(line: str) -> str:
            numbers = r"\\x[0-9a-f]{2}|\b0x[0-9a-f]+|\b[0-9a-f]{64}\b|(?<=params=)[0-9a-f]+|[\d.:]*\d[\d.:]*|\bnode\w+"
            numbered = re.sub(numbers, "#", line)
            # XLA appends which kinds of errors it has seen in any order, and one of several that it ends with.
            # PyTorch's warnings name a file with or without the folder of all packages.
            named = re.sub(r"\[type\.googleapis[^\]]*\]|(?<=absl::Status:).*|\bsite-packages/", "", numbered)
            return " ".join(named.split())  # the width of a column follows from its numbers

        known = set(map(shape, printed))
        unknown = [
            line for line in recorded if not keep(line) and not is_library_line(line) and shape(line) not in known
        ]
        return "recorded, but not printed:\n" + "\n".join(unknown) if unknown else None
