"""Run the jobs of the corpus that need no Slurm."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from helpers.corpus import FORMS, Job, drawn
from helpers.corpus_plan import ENDS_WELL, ROOT, Planned, changed
from support.ports import free_port
from support.reader import without_places

FAULTS = [str(ROOT / "bench" / "helpers" / "corpus_faults"), str(ROOT / "tests")]
SIMULATE = "from srunbook.cli import main; main(prog_name='srunbook')"
OWN = "srunbook simulate: "
LIMIT = 60
"""Seconds after which a job is killed."""


class Unfit(Exception):  # noqa: N818 - no error: the job is left out
    """A run that is not what its label says; the message says why."""


def without_own(lines: list[str]) -> list[str]:
    """Return what the tasks printed: not what the simulation says before and after them."""
    start = next((place for place, line in enumerate(lines) if not line.startswith(OWN)), len(lines))
    end = next((place for place in range(start, len(lines)) if lines[place].startswith(OWN)), len(lines))
    return lines[start:end]


def command(planned: Planned, python: Path) -> list[str]:
    """Return what starts a job."""
    port = str(free_port())
    first, *words = [word.replace("PORT", port) for word in planned.words]
    launched = [str(python), *(["-m", "torch.distributed.run"] if first == "torchrun" else []), *words]
    if not planned.slurm:
        return launched
    layout = ["--nodes", str(planned.nodes), "--ntasks-per-node", str(planned.tasks), "--slurm", planned.slurm]
    kill = "--kill-on-bad-exit" if planned.kill else "--no-kill-on-bad-exit"
    return [sys.executable, "-c", SIMULATE, "simulate", *layout, kill, "--timeout", str(LIMIT), "--", *launched]


def run(planned: Planned, forked: Path) -> Job:
    """Run a job, and return it with its log.

    Args:
        planned: The job.
        forked: An interpreter that has imported torch. A plain one runs JAX's programs, and those that start workers.

    Raises:
        Unfit: It did not end as its label says.
    """
    source = ROOT / planned.program
    plain = re.search(r"^(?:import|from) (?:jax|srunbook\.distributed)|num_workers=1", source.read_text("utf-8"), re.M)
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "JAX_"))}
    paths = [str(ROOT / "src"), *(FAULTS if planned.fault else [])]
    environ |= {"PYTHONPATH": ":".join(paths), "OMP_NUM_THREADS": "1", **dict(planned.environment)}
    environ |= {"CORPUS_FAULT": planned.fault} if planned.fault else {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path in [*source.parent.glob("*.py"), *source.parent.glob("full/*.py")]:
            if not path.name.startswith("plot_"):
                shutil.copy(path, folder)
        program = folder / source.name
        program.write_text(changed(program.read_text(encoding="utf-8"), planned.nodes * planned.tasks), "utf-8")
        try:
            done = subprocess.run(
                command(planned, Path(sys.executable) if plain else forked),
                cwd=folder,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=2 * LIMIT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Unfit(f"no end after {2 * LIMIT} s") from None
        printed = without_own(done.stdout.splitlines())
        lines = [cleaned(without_places(line, folder), forked) for line in printed]
    check_status(planned, done.returncode, lines)
    return Job(
        name=planned.name,
        kind=planned.kind,
        causes=planned.causes,
        program=planned.program,
        fault=" ".join([planned.fault, *(f"{name}={value}" for name, value in planned.environment)]).strip(),
        where="simulation" if planned.slurm else "process",
        slurm=planned.slurm,
        nodes=planned.nodes if planned.slurm else 0,
        ranks=planned.nodes * planned.tasks,
        status=done.returncode,
        form=drawn(f"form {planned.name}", [*FORMS]),
        log="\n".join(lines),
    )


def cleaned(line: str, forked: Path) -> str:
    """Return a line without what is of this machine alone."""
    line = line.replace(f"{forked.parent}/", "").replace(socket.gethostname(), "node1")
    line = re.sub(r"[^\s\"'(]*/(lib/python3\.\d+/)", r"\1", line)
    return re.sub(r"/tmp/tmp\w+/?|/tmp/torchelastic\w+/?", "/tmp/", line)


def check_status(planned: Planned, status: int, lines: list[str]) -> None:
    """Reject a run that ended otherwise than its label says."""
    fine = status == 0
    if not fine and not "".join(lines).strip():
        raise Unfit(f"ended with status {status} and printed nothing")
    if status == 124:
        raise Unfit(f"no end after {LIMIT} s")
    if planned.kind == "healthy" and not fine:
        raise Unfit(f"ended with status {status}: {' / '.join(lines[-3:])}")
    slug = planned.program.split("/")[-2]
    ends_well = slug in ENDS_WELL or planned.causes == ("lightning-sigterm",)
    if planned.kind in ("failed", "unknown") and fine and not ends_well:
        raise Unfit("ended with status 0")
