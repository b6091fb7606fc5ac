"""Diagnose a failed job: find the entry that explains its logs.

The entries are those of the troubleshooting pages. `explain` reads logs and what Slurm says of a job; its report names
the first failure with the fix and the page, and what followed.
"""

from __future__ import annotations

from srunbook.explain._diagnosis import Diagnosis, diagnose
from srunbook.explain._entries import Entry, Framework, Stage, Symptom, load_entries, page_of
from srunbook.explain._explain import Explained, explain
from srunbook.explain._flight import Collective
from srunbook.explain._forms import expression, shown
from srunbook.explain._hang import Hang
from srunbook.explain._job import JobLogs, find_job
from srunbook.explain._redact import Redactor
from srunbook.explain._report import Report, Status
from srunbook.explain._scan import Finding, Scanned, Scanner, shape
from srunbook.explain._trouble import Trouble

__all__ = [
    "Collective",
    "Diagnosis",
    "Entry",
    "Explained",
    "Finding",
    "Framework",
    "Hang",
    "JobLogs",
    "Redactor",
    "Report",
    "Scanned",
    "Scanner",
    "Stage",
    "Status",
    "Symptom",
    "Trouble",
    "diagnose",
    "explain",
    "expression",
    "find_job",
    "load_entries",
    "page_of",
    "shape",
    "shown",
]
