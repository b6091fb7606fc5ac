"""Run `srunbook verify`."""

from __future__ import annotations

import io
import sys
from dataclasses import replace
from pathlib import Path

import click

from srunbook import verify

FORMS = {
    "ddp_cpu_": verify.ResultsForm(
        required=("metrics.csv", "timings.csv", "checkpoint_latest.pth"),
        columns=(
            "epoch",
            "train_loss",
            "val_loss",
            "val_mae",
            "val_rmse",
            "epoch_time_sec",
            "throughput_samples_per_sec",
            "data_load_time_sec",
            "compute_time_sec",
            "gpu_util_avg",
            "cpu_util_avg",
        ),
        may_be_empty=("gpu_util_avg", "cpu_util_avg"),
        final=("train_loss", "val_loss", "val_mae", "val_rmse", "throughput_samples_per_sec"),
    ),
}
"""What the job scripts of the guides leave behind, by the beginning of the folder's name.

A file that was never written can only be missed by somebody who expects it, and the name is what a job script gives
its folder before anything can go wrong. Any other folder is judged by the header of its metrics.csv.
"""


WITH_A_REASON = (
    verify.Cause.FAILED,
    verify.Cause.CANCELLED,
    verify.Cause.TIMEOUT,
    verify.Cause.OUT_OF_MEMORY,
    verify.Cause.OTHER_STATE,
    verify.Cause.RAN_NOTHING,
    verify.Cause.UNFINISHED,
    verify.Cause.PENDING,
)
"""Causes behind which there is another one, that `srunbook explain` may find."""


@click.command(
    "verify",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Example:
  srunbook verify 17
  srunbook verify 56_3
  srunbook verify --backend gloo results/ddp_cpu_17

\b
Exit status: 0 if every check passed, 3 if one could not be made,
2 for bad input, and a status of its own for each cause of a failure.
""",
)
@click.option("--backend", metavar="NAME", help="Backend of all ranks, such as gloo. [default: the one they agree on]")
@click.option(
    "--require", metavar="FILE", multiple=True, help="A file that the folder of results must hold. May be repeated."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.argument("target", metavar="JOBID|RESULTS_DIR")
def command(target: str, backend: str | None, require: tuple[str, ...], as_json: bool) -> None:
    """Prove from what a job left behind that it did what it should.

    Run this in the folder where you submitted job JOBID. Of an array each element is judged, or one, as in 56_3; of a
    heterogeneous job each component, or one, as in 56+1. Once the job has ended, its folder of results gets
    EXECUTION_SUMMARY.md and sacct_summary.txt.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what this terminal cannot show, as a host's name in ASCII
    try:
        for name in require:
            if Path(name).name != name:
                raise verify.TargetError(f"--require {name}: give the name of a file in the folder of results, no path")
        artefacts = verify.collect(target)
        report = verify.judge(artefacts, backend=backend, form=lambda part: _form(part, require))
    except verify.TargetError as error:
        _say(str(error))
        sys.exit(verify.Cause.BAD_INPUT)
    except OSError as error:
        _say(f"broken off: {error}")
        sys.exit(verify.Cause.BROKEN_OFF)
    click.echo(report.json() if as_json else report.text(), nl=False)
    if report.cause in WITH_A_REASON and artefacts.job:
        _say(f"to find out why: srunbook explain {artefacts.job}")
    for part, judged in zip(artefacts.parts or [artefacts], report.parts or [report], strict=True):
        if part.results is not None and judged.ended:
            _keep(part, judged, part.results)
    sys.exit(report.cause)


def _form(artefacts: verify.Artefacts, require: tuple[str, ...]) -> verify.ResultsForm:
    """Choose the form of a folder by its name, or by a header that is that of a guide; add the files asked for."""
    name = artefacts.results.resolve().name if artefacts.results else ""
    known = (form for start, form in FORMS.items() if name.startswith(start) or artefacts.header == form.columns)
    form = next(known, verify.ResultsForm())
    return replace(form, required=tuple(dict.fromkeys([*form.required, *require])))


def _keep(artefacts: verify.Artefacts, report: verify.Report, folder: Path) -> None:
    """Write the summaries into the folder of results; someone else's folder cannot be written, which is no fault."""
    try:
        verify.write_accounting(artefacts)
        report.write_summary(folder)
    except OSError as error:
        _say(f"no summary was written: {error}")


def _say(text: str) -> None:
    click.echo(f"srunbook verify: {verify.printable(text)}", err=True)
