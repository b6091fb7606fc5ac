"""Train on two ranks, keep their output, and ask which one failed first.

python first_failure.py
"""

from __future__ import annotations

import sys
from pathlib import Path

from srunbook import explain, simulate

job = simulate.run([sys.executable, "train.py"], nodes=2, ntasks_per_node=1, kill_on_bad_exit=False)
Path("job.log").write_text(job.output)

print(explain.explain(["job.log"]).report.text(), end="")
