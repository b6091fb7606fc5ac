"""The command `srunbook`: each subcommand is a module here, and is imported when it is called."""

from __future__ import annotations

import importlib
import io
import sys

import click

import srunbook

SUBCOMMANDS = {
    "cluster": "Boot a real Slurm of several nodes on this machine.",
    "explain": "Find the first failure in a job's logs, and the page that explains it.",
    "generate": "Write a job script for sbatch.",
    "memory": "Say how much memory a model takes on each GPU.",
    "simulate": "Run a command as several processes with the environment that srun sets.",
    "verify": "Check that a finished job did its work.",
}
"""Name of each subcommand (a module here that defines `command`) and its line in `srunbook --help`."""


class LazyGroup(click.Group):
    """A group whose subcommands are imported when they are called, so that `--help` stays quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the subcommands in the order of `SUBCOMMANDS`."""
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one subcommand; return None for an unknown name."""
        if cmd_name not in SUBCOMMANDS:
            return None
        command: click.Command = importlib.import_module(f"srunbook.cli.{cmd_name}").command
        command.name = cmd_name
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of subcommands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(SUBCOMMANDS.items()))


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: srunbook simulate --nodes 2 --ntasks-per-node 2 -- python train.py",
)
@click.version_option(srunbook.__version__, prog_name="srunbook")
def main() -> None:
    """Multi-node training on Slurm: try it here before you queue for it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what this terminal cannot show
