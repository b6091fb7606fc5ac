"""Tamper with finished jobs: kinds of tampering, drawn from a seed and combined, each with why the job must not pass.

`tampered(seed)` draws a job and tampers with it; `KINDS` has all kinds by name.
"""

from __future__ import annotations

from support.tampering import _files, _lines, _logs, _metrics, _rows, _steps  # noqa: F401  # they add their kinds
from support.tampering._kinds import KINDS, Case, Kind, seeds, tampered

__all__ = ["KINDS", "Case", "Kind", "seeds", "tampered"]
