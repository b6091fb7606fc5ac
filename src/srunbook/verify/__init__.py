"""Did a finished job do its work? Its accounting, the rank lines in its logs and its metrics.csv tell.

`verify` checks a job, an element of an array, or a folder of results. What nothing shows is "not proven".
"""

from __future__ import annotations

from srunbook.verify._report import Check, Report, Verdict
from srunbook.verify._verify import TargetError, verify

__all__ = ["Check", "Report", "TargetError", "Verdict", "verify"]
