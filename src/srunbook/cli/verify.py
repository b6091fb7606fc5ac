"""The command `srunbook verify`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from srunbook import verify


@click.command(
    "verify",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Example:
  srunbook verify 17
  srunbook verify --backend gloo results/ddp_cpu_17

\b
Exit status: 0 where every check passed, 3 where one could not be made,
2 for bad input, and one for each cause of a failure.
""",
)
@click.option("--backend", metavar="NAME", help="Backend of all ranks, such as gloo. [default: the one they agree on]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON in place of a table.")
@click.argument("target", metavar="JOBID|RESULTS_DIR")
def command(target: str, backend: str | None, as_json: bool) -> None:
    """Prove from what a job left behind that it did what it should.

    JOBID is looked up in the folder where the job was submitted. In a folder of results, EXECUTION_SUMMARY.md and
    sacct_summary.txt are written once the job has ended.
    """
    try:
        artefacts = verify.collect(target)
        report = verify.judge(artefacts, backend=backend)
    except verify.TargetError as error:
        _say(str(error))
        sys.exit(verify.Cause.BAD_INPUT)
    except OSError as error:
        _say(f"broken off: {error}")
        sys.exit(verify.Cause.BROKEN_OFF)
    click.echo(report.json() if as_json else report.text(), nl=False)
    if artefacts.results is not None and report.ended:
        _keep(artefacts, report, artefacts.results)
    sys.exit(report.cause)


def _keep(artefacts: verify.Artefacts, report: verify.Report, folder: Path) -> None:
    """Writes what the folder of results should hold; somebody else's folder cannot be written, which is no fault."""
    try:
        verify.write_accounting(artefacts)
        report.write_summary(folder)
    except OSError as error:
        _say(f"no summary was written: {error}")


def _say(text: str) -> None:
    click.echo(f"srunbook verify: {text}", err=True)
