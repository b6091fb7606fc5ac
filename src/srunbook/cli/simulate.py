"""The command `srunbook simulate`."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Any

import click

from srunbook import simulate
from srunbook.simulate._run import LAST_LINES

INTERRUPTED = 130
"""Exit status after Ctrl-C."""

BROKEN_PIPE = 141
"""Exit status when the reader of standard output has gone away."""


@click.command(
    "simulate",
    context_settings={"allow_interspersed_args": False},
    epilog="""\b
Example:
  srunbook simulate --nodes 2 --ntasks-per-node 2 -- python train.py

\b
Exit status:
  0       all tasks exited with 0
  1       the simulation itself failed, as on a full disk
  N       the highest exit status of the tasks that ended by themselves
  128+N   a task was ended by signal N (137: SIGKILL)
  2       bad input, or the command was not found; nothing was started
  124     the time limit was reached
  130     Ctrl-C
  141     the reader of standard output closed it
""",
)
@click.option(
    "-N",
    "--nodes",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of nodes. [default: as many as the layout has, or 1]",
)
@click.option(
    "--ntasks-per-node", default="1", show_default=True, metavar="N", help="Tasks on each node, or a layout: 4(x2),3."
)
@click.option(
    "-c",
    "--cpus-per-task",
    type=click.IntRange(min=1),
    metavar="N",
    help="CPUs of each task, in the environment only.",
)
@click.option(
    "--gpus-per-node",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="N",
    help="GPUs of each node; JAX gets CPU devices.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Kill all tasks after this time. [default: never]",
)
@click.option("--output-dir", metavar="DIR", help="Also write DIR/rank-N.log.")
@click.option(
    "--slurm",
    type=click.Choice(simulate.GENERATIONS),
    default=simulate.GENERATIONS[0],
    show_default=True,
    help="The generation of Slurm whose environment is imitated.",
)
@click.option(
    "--label/--no-label", default=True, help="Begin each line of output with [rank], or not. [default: label]"
)
@click.option(
    "--kill-on-bad-exit/--no-kill-on-bad-exit",
    default=True,
    help="Kill all tasks when one fails, or not. [default: kill]",
)
@click.argument("command", nargs=-1, required=False, type=click.UNPROCESSED)
def command(command: tuple[str, ...], **options: Any) -> None:
    """Run COMMAND as several processes on this machine, each with the environment that srun gives to a task.

    The command doesn't schedule or limit anything: it starts the processes, labels their output, and leaves no
    process behind.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt_once)
    try:
        result = simulate.run(command, echo=True, keep_lines=LAST_LINES, **options)
    except simulate.SimulationError as error:
        _say(str(error))
        sys.exit(2)
    except KeyboardInterrupt:
        _say("interrupted; all tasks were killed")
        sys.exit(INTERRUPTED)
    except OSError as error:
        # What is left in the buffer of stdout can't be written at the exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            sys.exit(BROKEN_PIPE)
        _say(f"stopped, and all tasks were killed: {error}")
        sys.exit(1)
    if result.failure:
        _say(result.failure)
    sys.exit(result.returncode)


def _say(text: str) -> None:
    click.echo(f"srunbook simulate: {text}", err=True)


def _interrupt_once(_number: int, _frame: FrameType | None) -> None:
    """Ignore Ctrl-C after the first: further ones would only disturb the cleanup that it starts."""
    if signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}):
        raise KeyboardInterrupt
