"""Run `srunbook explain`."""

from __future__ import annotations

import sys

import click

from srunbook import explain
from srunbook.cli._speaking import say


@click.command(
    "explain",
    epilog="""\b
Example:
  srunbook explain slurm-17.out
  srunbook explain 17
  srunbook explain 17 results/rank_*.log
  srunbook explain slurm-17.out dumps/rank_*.json
  ssh cluster cat slurm-17.out | srunbook explain --redact -

\b
Exit status: 0 if an entry explains the first failure or dumps show where ranks
wait, 3 if no entry has it, 4 if nothing looks like a failure, 2 if a log, a
dump or a job could not be read.
""",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@click.option("--redact", is_flag=True, help="Mask users, homes, hosts, addresses, tokens and keys.")
@click.argument("targets", metavar="LOG...|JOBID|-", nargs=-1, required=True)
def command(targets: tuple[str, ...], as_json: bool, redact: bool) -> None:
    """Find the first failure in a job's logs, and the page that explains it.

    LOG is a log of any launcher, of one rank or of all ranks, plain or gzipped; - reads a log from standard input.
    With JOBID, the command asks Slurm where that job's logs are, and how the job ended or what it waits for. A LOG may
    also be a JSON dump of PyTorch's flight recorder with the rank in its name.
    """
    explained = explain.explain(targets, redact=redact)
    for problem in explained.problems:
        say("explain", explained.report.mask(problem))
    report = explained.report
    if as_json or report.logs or report.state or report.dumps or report.diagnosis.cause or not explained.problems:
        click.echo(report.json() if as_json else report.text(), nl=False)
    sys.exit(explain.Status.BAD_INPUT if explained.problems else report.status)
