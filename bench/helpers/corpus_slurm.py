"""Run the jobs of the corpus that need a real Slurm."""

from __future__ import annotations

import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from helpers.corpus import FORMS, Job, drawn
from helpers.corpus_simulated import Unfit
from helpers.corpus_slurm_plan import HERE, ROOT, Scripted, plan
from helpers.program import boot
from support.limited_site import MAINTENANCE, SITE, typed
from support.published import PLACE, programs_of

from srunbook import cluster
from srunbook.cluster import ClusterError, Specification, State
from srunbook.slurm import is_over, queue_states

__all__ = ["plan", "run_all"]

AT_ONCE = 4
LIMIT = 180.0
"""Seconds after which a job is cancelled."""

STILL = 3.0
"""Seconds without a change after which the reason of a job that waits is believed."""


def run_all(
    generation: str,
    wanted: Sequence[Scripted],
    name: str,
    seconds: float,
    add: Callable[[Job], None],
    leave_out: Callable[[str, str], None],
) -> None:
    """Boot a cluster, and run scripts on it side by side.

    Args:
        generation: Of Slurm.
        wanted: The scripts.
        name: Of the cluster.
        seconds: After which no further script is started.
        add: Keeps a job.
        leave_out: Notes a run that was not what its label says.
    """
    began, one_at_a_time = time.monotonic(), threading.Lock()
    state = boot(Specification(name=name, slurm=generation, **SITE))
    try:
        cluster.capture(state, ["scontrol", "create", "reservation", *MAINTENANCE.split()], user=None)

        def make(one: Scripted) -> None:
            if time.monotonic() - began > seconds:
                return
            try:
                job = run(state, one)
            except (Unfit, ClusterError) as why:
                with one_at_a_time:
                    leave_out(one.name, " / ".join(str(why).splitlines())[:300])
                return
            with one_at_a_time:
                add(job)

        with ThreadPoolExecutor(AT_ONCE) as pool:
            for _ in pool.map(make, wanted):
                pass
    finally:
        cluster.down(name)


def run(state: State, one: Scripted) -> Job:
    """Run a script, and return its job with its log.

    Raises:
        Unfit: It did not end as its label says.
        ClusterError: It did not end.
    """
    source = ROOT / one.program
    with tempfile.TemporaryDirectory() as name:
        script = source
        if one.edit or one.bare:
            script = Path(name, source.name)
            script.write_bytes((one.edit or bytes)(source.read_bytes()))
        beside = [] if one.bare or one.way in ("refused", "waits") else programs_of(source)
        folder = cluster.stage(state, script, extra=beside)
    return {"shell": typed_by_hand, "refused": refused, "waits": waiting, "runs": ended}[one.way](state, one, folder)


def sbatch(state: State, one: Scripted, folder: str) -> tuple[int, str, str]:
    """Submit a script; return the exit status, what sbatch said, and the number of the job."""
    home = folder.rpartition("/")[0]
    fitted = [option for option in HERE if one.program.startswith("slurm/")]
    named = {option.partition("=")[0] for option in one.options}
    options = [option for option in fitted if option.partition("=")[0] not in named]
    options += [option.replace("HOME", home) for option in one.options]
    if "--dependency=afterok:FAILED" in options:
        failed = cluster.capture(state, ["sbatch", "--parsable", "--time=1", "--wrap=exit 1"], folder=folder)
        options = [option.replace("FAILED", failed.stdout.strip()) for option in options]
    program, *words = typed(ROOT / one.program)
    words = [] if one.program.endswith(".py") else words  # one of the options has the command
    given = ["env", f"PYTHONPATH={PLACE}/src"] if fitted else []  # some programs import the library
    done = cluster.capture(state, [*given, program, "--parsable", *options, *words], folder=folder, timeout=60)
    number = re.search(r"^\d+$", done.stdout, re.MULTILINE)
    return done.returncode, done.stdout + done.stderr, number[0] if number else ""


def typed_by_hand(state: State, one: Scripted, folder: str) -> Job:
    """Run a script of commands as a user types them."""
    done = cluster.capture(state, ["bash", "-c", "bash broken.sh"], folder=folder, timeout=120)
    return job_of(one, done.stdout + done.stderr, done.returncode)


def refused(state: State, one: Scripted, folder: str) -> Job:
    """Submit a script that sbatch refuses."""
    status, said, number = sbatch(state, one, folder)
    if status == 0:
        cluster.capture(state, ["scancel", number])
        raise Unfit(f"sbatch took it: {said.strip()}")
    return job_of(one, said, status)


def waiting(state: State, one: Scripted, folder: str) -> Job:
    """Submit a script that stays in the queue, and ask why when that no longer changes."""
    status, said, number = sbatch(state, one, folder)
    if status != 0:
        raise Unfit(f"sbatch refused it: {said.strip()}")
    reason, since, deadline = "", time.monotonic(), time.monotonic() + 20
    while time.monotonic() - since < STILL and time.monotonic() < deadline:
        asked = cluster.capture(state, ["squeue", "--noheader", f"--jobs={number}", "--format=%T %R"])
        if asked.stdout.strip() != reason or "(None)" in reason:
            reason, since = asked.stdout.strip(), time.monotonic()
        time.sleep(0.5)
    cluster.capture(state, ["scancel", number])
    if not reason.startswith("PENDING"):
        raise Unfit(f"does not wait: {reason!r}")
    return job_of(one, "", 0, accounting=[f"squeue: {line}" for line in reason.splitlines()])


def ended(state: State, one: Scripted, folder: str) -> Job:
    """Submit a script and wait for its end."""
    status, said, number = sbatch(state, one, folder)
    if status != 0:
        raise Unfit(f"sbatch refused it: {said.strip()}")
    if one.hurry or one.cancel:
        await_step(state, number)
        end = ["scontrol", "update", f"JobId={number}", "EndTime=now"] if one.hurry else ["scancel", number]
        cluster.capture(state, end, user=None)
    finished = cluster.await_job(state, number, timeout=LIMIT)
    written = cluster.capture(state, ["bash", "-c", f"cat *_{number}.out ~/job_{number}.out"], folder=folder)
    rows = [f"sacct: {row['JobID']} {row['State'].split()[0]} {row['ExitCode']}" for row in finished.rows]
    completed = all(row.endswith(" COMPLETED 0:0") for row in rows)
    if one.kind == "healthy" and not completed:
        raise Unfit(f"{finished.state}: {' / '.join(written.stdout.splitlines()[-3:])}")
    if completed and (one.kind == "unknown" or (one.kind == "failed" and one.fault)):  # an entry's own may go on
        raise Unfit("completed")
    return job_of(one, written.stdout, finished.exit_status, accounting=rows, completed=completed)


def await_step(state: State, number: str) -> None:
    """Wait until a job has started its programs, or is over."""
    deadline = time.monotonic() + LIMIT

    def ask(command: list[str]) -> subprocess.CompletedProcess[str]:
        return cluster.capture(state, command)

    while time.monotonic() < deadline:
        steps = ask(["squeue", "--noheader", "--steps", f"--jobs={number}", "--format=%i"]).stdout
        states = queue_states(number, ask) or {}
        if re.search(rf"^{number}\.\d+$", steps, re.MULTILINE) or any(map(is_over, states.values())):
            return
        time.sleep(0.3)


def job_of(one: Scripted, log: str, status: int, accounting: Sequence[str] = (), *, completed: bool = False) -> Job:
    """Return the job of a script."""
    layout = {name: re.search(rf"--{name}=(\d+)", " ".join(one.options)) for name in ("nodes", "ntasks-per-node")}
    nodes = int(layout["nodes"][1]) if layout["nodes"] else 2 if one.program.startswith("slurm/") else 1
    tasks = int(layout["ntasks-per-node"][1]) if layout["ntasks-per-node"] else 1
    started = one.way == "runs"
    return Job(
        name=one.name,
        kind=one.kind,
        causes=one.causes,
        program=one.program,
        fault=one.fault,
        where="slurm" if one.way in ("runs", "waits") else "shell",
        slurm=one.slurm,
        nodes=nodes if started else 0,
        ranks=nodes * tasks if started else 0,
        status=status,
        form=drawn(f"form {one.name}", [*FORMS]),
        log="\n".join(cleaned(line) for line in log.splitlines()),
        accounting=tuple(accounting),
        completed=completed,
    )


def cleaned(line: str) -> str:
    """Return a line without the folders of the machine that the cluster runs on."""
    line = re.sub(r'[^"\s(\']*/(site-packages/)', r"\1", line)
    line = re.sub(r'"/[^"\s]*/(lib/python3\.\d+/)', r'"\1', line)
    return line.replace(f"{ROOT}/", "")
