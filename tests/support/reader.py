"""A reader of the pages: saves one program, and runs it as its docstring says."""

from __future__ import annotations

import argparse
import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from support.ports import free_port
from support.programs import modules

from recordings import Recording
from recordings.checking import new_run
from srunbook import simulate

ROOT = Path(__file__).resolve().parents[2]


def without_places(line: str, folder: Path) -> str:
    """Return a line without the folders of this machine, and with the text of a link in place of its address."""
    line = re.sub(r"\[(\w+)\]\(https?://[^)\s]*\)", r"\1", line)
    line = re.sub(r'[^"\s(]*/(site-packages/)', r"\1", line)
    line = re.sub(r'"/[^"\s]*/(lib/python3\.\d+/)', r'"\1', line)
    for place in (f"{folder}/", f"{sys.prefix}/bin/", f"{ROOT}/"):
        line = line.replace(place, "")
    return line


@dataclass(frozen=True)
class Reader:
    """Somebody with an empty folder.

    Args:
        folder: The folder.
        compare: Compares a run with the recording beside its program: `recordings.checking.check`.
    """

    folder: Path
    compare: Callable[..., None]

    @staticmethod
    def commands(program: Path) -> list[str]:
        """Commands at the top of a program that need no Slurm."""
        docstring = ast.get_docstring(ast.parse(program.read_text(encoding="utf-8"))) or ""
        found = re.findall(r"^ *((?:srunbook simulate|python|torchrun) .*?) *(?:#.*)?$", docstring, re.MULTILINE)
        return [" ".join(command.split()) for command in found]

    def run(self, program: Path, command: str, beside: Iterable[Path] = ()) -> Recording:
        """Run a command of a program's docstring in a folder with its modules alone; return what a recording holds.

        Args:
            program: The program.
            command: The command. The port 29400 in it stands for any that is free.
            beside: Other files that the program needs.
        """
        for path in (program, *modules(program), *beside):
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
        return new_run(
            program,
            command,
            "\n".join(without_places(line, self.folder) for line in output.splitlines()),
            where="simulation" if start else "process",
            exit_code=status,
            versions={"python": sys.version.split()[0]},
        )

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
