"""A `sacct` for PATH that answers as Slurm's does: any columns, any delimiter, text as its user wrote it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

PROGRAM = """\
#!{python}
import json, re, sys
given = dict(word.lstrip("-").partition("=")[::2] for word in sys.argv[1:])
mark, columns, job = given.get("delimiter", "|"), given["format"].split(","), given["jobs"]
with open({rows!r}) as file:
    rows = json.load(file)
lines = [columns]
for row in rows:
    identity, raw = row["JobID"].split(".")[0], row["JobIDRaw"].split(".")[0]
    if job in (identity, raw, re.match("[0-9]+", identity)[0]):
        lines.append([row.get(column, "") for column in columns])
print("\\n".join(mark.join(line) for line in lines))
"""


def install_sacct(folder: Path, rows: Sequence[dict[str, str]]) -> Path:
    """Write the program into `folder/bin`, with the rows that it knows; return that folder for PATH."""
    path = folder / "bin" / "sacct"
    path.parent.mkdir(exist_ok=True)
    known = folder / "sacct.json"
    known.write_text(json.dumps([{"JobIDRaw": row["JobID"], **row} for row in rows]))
    path.write_text(PROGRAM.format(python=sys.executable, rows=str(known)))
    path.chmod(0o755)
    return path.parent
