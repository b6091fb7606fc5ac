"""Prove from its artefacts that a finished job did what it should.

`collect` reads what a job left behind, `judge` checks it: files, accounting, and the lines that its ranks
printed. What could not be checked is "not proven", which is not "passed".
"""

from __future__ import annotations

from srunbook._text import printable
from srunbook.slurm import ask_sacct
from srunbook.verify._artefacts import Artefacts, collect, write_accounting
from srunbook.verify._causes import Cause
from srunbook.verify._form import ResultsForm
from srunbook.verify._judge import judge
from srunbook.verify._launches import RankRun
from srunbook.verify._logs import Log, parse_log
from srunbook.verify._places import TargetError
from srunbook.verify._report import Check, Outcome, Report

__all__ = [
    "Artefacts",
    "Cause",
    "Check",
    "Log",
    "Outcome",
    "RankRun",
    "Report",
    "ResultsForm",
    "TargetError",
    "ask_sacct",
    "collect",
    "judge",
    "parse_log",
    "printable",
    "write_accounting",
]
