"""Run `srunbook verify`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from srunbook.cli._speaking import say
from srunbook.verify import TargetError, verify


@click.command(
    "verify",
    epilog="""\b
Example:
  srunbook verify 17
  srunbook verify 56_3
  srunbook verify --log train.log 17
  srunbook verify --backend gloo results/ddp_cpu_17

\b
Exit status: 0 passed, 1 failed, 3 not proven, 2 wrong usage.
""",
)
@click.option(
    "--log",
    "logs",
    metavar="FILE",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A log of the job, instead of the logs that Slurm lists. May be repeated.",
)
@click.option("--backend", metavar="NAME", help="Backend of all ranks, such as gloo. [default: the one they agree on]")
@click.option(
    "--require", metavar="FILE", multiple=True, help="A file that the folder of results must contain. May be repeated."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.argument("target", metavar="JOBID|RESULTS_DIR")
def command(target: str, logs: tuple[Path, ...], backend: str | None, require: tuple[str, ...], as_json: bool) -> None:
    """Check that a finished job did its work.

    Run this in the folder where you submitted job JOBID. It checks all elements of an array, or one, as in 56_3, and
    all components of a heterogeneous job, or one, as in 56+1. Once the job has ended, its folder of results gets
    EXECUTION_SUMMARY.md and sacct_summary.txt.
    """
    try:
        report = verify(target, logs=logs, backend=backend, require=require)
    except TargetError as error:
        say("verify", str(error))
        sys.exit(2)
    click.echo(report.json() if as_json else report.text(), nl=False)
    try:
        report.write()
    except OSError as error:  # somebody else's folder
        say("verify", f"no summary was written: {error}")
    sys.exit(report.verdict.status)
