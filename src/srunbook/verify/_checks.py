"""The checks: what Slurm says, and what the ranks say."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from srunbook.slurm import Accounting, SacctRow, SlurmParseError, compress_hostlist, expand_hostlist
from srunbook.verify._logs import Logs, World
from srunbook.verify._metrics import DIVERGED
from srunbook.verify._report import Check, failed, not_proven, passed

STATES = {
    "OUT_OF_MEMORY": "sacct -j {job} --format=JobID,MaxRSS,ReqMem shows how much it took; ask for more with --mem",
    "NODE_FAIL": "sinfo -R says why the node is down; submit again, with --requeue if the program can resume",
    "TIMEOUT": "ask for more time, as in sbatch --time=02:00:00, or resume from the checkpoint",
    "CANCELLED": "somebody ended it: sacct -j {job} --format=JobID,State%30 says who; then submit again",
    "FAILED": "look for the first error: srunbook explain {job}",
}
"""What to do, by state; the state that tells most comes first."""

STATUSES = {
    75: "a program that saves at a signal ends with 75: submit it again, with the same --checkpoint-dir",
    78: "78 says that it would only fail again in the same way: srunbook explain {job}",
}
"""What to do, by exit status; these are those of `srunbook.signals`."""

NEVER_STARTED = (
    "no rank printed a start line, so more time may not help: the ranks may wait for each other. Check the address "
    "and port where they meet, and the network: srunbook explain {job}"
)
OWN_WORLDS = (
    "each task has a world of its own. Under torchrun, --nnodes is missing or --standalone is given; without torchrun, "
    "take rank and world size from SLURM_PROCID and SLURM_NTASKS in each task"
)
PLACES = "take rank and world size from SLURM_PROCID and SLURM_NTASKS in each task"
SAME_RANK = "take the rank from SLURM_PROCID in each task, not from the batch script, where it is always 0"
PRINT = "have every rank print one line at its start and one at its end, as in: rank 0/2 start host=node1"
NO_LINES = "no rank printed a start line"


@dataclass(frozen=True)
class Step:
    """A step that srun started, or the steps of one number of all components of a heterogeneous job.

    Args:
        name: Its number, such as `17.0`.
        tasks: Number of its tasks, or 0 if sacct does not say.
        nodes: Names of its nodes, without domains.
    """

    name: str
    tasks: int
    nodes: Sequence[str]


# What Slurm says


def check_job(job: str, accounting: Accounting, logs: Logs) -> Check:
    """Check that a job, an element or a component is COMPLETED 0:0."""
    if not accounting.rows:
        if accounting.queued:
            return not_proven("job", f"{accounting.queued}, says squeue", f"wait: squeue -j {job} --format='%T %r'")
        if accounting.problem:
            return not_proven("job", accounting.problem, "run srunbook verify on a login node, where sacct works")
        hint = "look for its number: sacct --starttime=now-7days; a job of another cluster needs SLURM_CLUSTERS=NAME"
        return not_proven("job", f"sacct knows no job {job}", hint)
    rows = accounting.attempts[-1]
    row, earlier = rows[0], [attempt[0].state for attempt in accounting.attempts[:-1]]
    again = f"; attempt {len(earlier) + 1}, before it {', '.join(earlier[-8:])}" if earlier else ""
    where = f"{_count(row.nodes, 'node')}{f' ({row.node_list})' if row.node_list else ''}"
    if not row.ended:
        evidence = f"{row.state}, {where}, elapsed {row.elapsed or 'unknown'}{again}"
        return not_proven(
            "job", evidence, f"verify it when it has ended; squeue -j {job} --format='%T %r' says why it waits"
        )
    evidence = f"{ending(row)}, {where}, elapsed {row.elapsed or 'unknown'}, says {accounting.source}{again}"
    if fine(row):
        return passed("job", evidence)
    return failed("job", f"{evidence}; expected COMPLETED 0:0", _hint(job, rows, logs))


def check_steps(job: str, accounting: Accounting, logs: Logs) -> Check:
    """Check that every step is COMPLETED 0:0, and that srun started one."""
    if not accounting.rows:
        return not_proven("steps", "sacct gave no rows", "run srunbook verify on a login node, where sacct works")
    job_row, *steps = accounting.attempts[-1]
    wrong = [row for row in steps if not fine(row)]
    if wrong:
        named = ", ".join(f"{row.identity} is {ending(row)}" for row in wrong[:8])
        return failed("steps", f"{named}; expected COMPLETED 0:0", _hint(job, wrong, logs))
    if not any(row.step[:1].isdigit() for row in steps) and (job_row.nodes or 1) > 1 and not logs.started:
        evidence = f"{_count(job_row.nodes, 'node')}, and no step of srun"
        return not_proven(
            "steps", evidence, "the script alone runs on the first node only: put srun before the command"
        )
    named = ", ".join(f"{row.identity} {ending(row)}" for row in steps[:8])
    return passed("steps", f"{named}{f' and {len(steps) - 8} more' if steps[8:] else ''}" or "no step, one node")


def ending(row: SacctRow) -> str:
    """Return how a row ended, such as `FAILED 1:0`."""
    return f"{row.state} {row.exit_code}:{row.signal}"


def fine(row: SacctRow) -> bool:
    """Return whether a row is COMPLETED 0:0."""
    return (row.state, row.exit_code, row.signal) == ("COMPLETED", 0, 0)


def _hint(job: str, rows: Sequence[SacctRow], logs: Logs) -> str:
    states = [row.state if row.state in STATES else "FAILED" for row in rows if not fine(row)]
    state = next(state for state in STATES if state in states)
    others = [row.state for row in rows if row.state not in (*STATES, "COMPLETED")]
    status = rows[0].exit_code
    if state == "TIMEOUT" and logs.read and not logs.started:
        hint = NEVER_STARTED
    elif state == "FAILED" and len(logs.lines) == 1:
        return f"all that the log says: {logs.lines[0]}"
    elif state in ("FAILED", "CANCELLED") and others:
        hint = "sacct -j {job} --format=JobID,State,Reason,ExitCode says why; then submit again"
    else:
        hint = STATUSES.get(status, STATES[state]) if state == "FAILED" else STATES[state]
    return hint.format(job=job)


# What the ranks say


def steps_of(accounting: Accounting) -> list[Step]:
    """Return the steps that srun started in the last attempt; those of components also together."""
    apart: list[Step] = []
    together: dict[str, list[Step]] = {}
    for row in accounting.last:
        number = re.fullmatch(r"([0-9]+)(?:\+[0-9]+)?", row.step)
        if number:
            apart.append(Step(row.identity, row.tasks or 0, _short(row.node_list)))
            together.setdefault(number[1], []).append(apart[-1])
    joined = [parts for parts in together.values() if len(parts) > 1]
    return apart + [
        Step(
            " and ".join(part.name for part in parts), sum(p.tasks for p in parts), [n for p in parts for n in p.nodes]
        )
        for parts in joined
    ]


def check_world(worlds: Sequence[World], steps: Sequence[Step], accounting: Accounting, logs: Logs) -> Check:
    """Check that the ranks of each step are one world, and that all of them are there."""
    name = "world"
    once = max((len(part.attempts) for part in accounting.parts.values()), default=1) == 1
    for world in worlds:
        fitting = [step for step in steps if _fits(step, world)]
        twins = _twins(world, worlds, fitting) if once else None
        if twins:
            return twins
        if not fitting and steps:
            return _misfit(world, worlds, steps, accounting)
    for world in worlds:
        missing = list(islice((rank for rank in range(world.size) if rank not in world.runs), 9))
        if missing:
            evidence = f"{len(world.runs)} of {world.size} ranks printed a start line; not rank {_few(missing)}"
            return not_proven(name, evidence, f"is its output in another file? Give each: --log FILE. Or {PRINT}")
    if logs.stray:
        return not_proven(name, f"an end line without a start line: {logs.stray}", PRINT)
    matched = max((max((s.tasks for s in steps if _fits(s, world)), default=0) for world in worlds), default=0)
    silent = next((step for step in steps if step.tasks > matched and " and " not in step.name), None)
    if silent and matched:
        return not_proven(name, f"{silent.name} has {silent.tasks} tasks and printed no rank lines", PRINT)
    return passed(name, "; ".join(f"world of {world.size}: {_places([world])}" for world in worlds[:8]))


def _twins(world: World, worlds: Sequence[World], fitting: Sequence[Step]) -> Check | None:
    """Check that no two processes were the same rank, unless each was of a step of its own."""
    if not (world.twins or world.moved):
        return None
    evidence = f"{world.times} worlds of {_count(world.size, 'rank')}: {_places(worlds)}"
    if world.times > max(len(fitting), 1):
        if len(world.runs) == world.size:
            return failed("world", evidence, OWN_WORLDS)
        return failed("world", f"rank {min(world.runs)} is there {world.times} times: {_places(worlds)}", SAME_RANK)
    if world.twins and max((step.tasks for step in fitting), default=1) > 1:
        return not_proven("world", f"at the same time, {evidence}", f"run one step after the other; or {OWN_WORLDS}")
    return None


def _misfit(world: World, worlds: Sequence[World], steps: Sequence[Step], accounting: Accounting) -> Check:
    step = max(steps, key=lambda step: step.tasks)
    has = f"{step.name} has {_count(step.tasks, 'task')} on {_count(len(step.nodes), 'node')}"
    if not step.tasks:
        return not_proven("world", f"sacct does not say how many tasks {step.name} had", "ask again in a minute")
    one_node = world.times == 1 and len(step.nodes) == 1  # where the script itself may have started the ranks
    if world.size % step.tasks == 0 or len(accounting.parts) > 1 or one_node:
        evidence = f"a world of {world.size} on {_count(len(world.hosts), 'node')}, and {has}"
        return not_proven("world", evidence, "Slurm counts only ranks that srun starts: start them with srun")
    times = f"{world.times} worlds" if world.times > 1 else "a world"
    evidence = f"{times} of {_count(world.size, 'rank')}, and {has}: {_places(worlds)}"
    return failed("world", evidence, OWN_WORLDS if world.times > 1 else PLACES)


def _fits(step: Step, world: World) -> bool:
    """Return whether the tasks of a step can be these ranks: one each, or each task a launcher of as many."""
    return bool(step.tasks) and world.size % step.tasks == 0 and len(world.hosts) <= len(step.nodes or world.hosts)


def check_hosts(worlds: Sequence[World], steps: Sequence[Step], accounting: Accounting) -> Check | None:
    """Check that the ranks ran on all nodes that they were given; None if they name no hosts."""
    runs = [run for world in worlds for run in world.runs.values()]
    if not any(run.start.host for run in runs):
        return None
    given = list(dict.fromkeys(node for row in accounting.last if not row.step for node in _short(row.node_list)))
    seen = list(dict.fromkeys(host for world in worlds for host in world.hosts))
    if not given:
        return not_proven("hosts", "sacct names no nodes of the job", "ask again in a minute")
    if not {*seen} & {*given}:
        if len(seen) == len(given):
            return None  # the site gives its hosts other names
        hint = "have every rank print Slurm's name of its node: host=$SLURMD_NODENAME"
        return not_proven("hosts", f"the ranks name {_listed(seen)}, Slurm {_listed(given)}", hint)
    unused = [node for node in given if node not in seen]
    other = [host for host in seen if host not in given]
    wrong = f"ran on {_listed(seen)}; the job was given {_listed(given)}" if unused or other else ""
    for world in worlds if not wrong else ():
        fitting = [step for step in steps if _fits(step, world) and step.nodes]
        if fitting and not any({*step.nodes} == {*world.hosts} for step in fitting):
            wrong = f"of a world of {world.size} ran on {_listed(world.hosts)}; {fitting[0].name} was given "
            wrong += _listed(fitting[0].nodes)
    if wrong:
        ranks = _count(len(runs), "rank") if wrong.startswith("ran") else "the ranks"
        hint = "start the tasks on all nodes: srun --ntasks-per-node=N, without --nodes or -w of its own"
        if not any(row.step[:1].isdigit() for row in accounting.last):
            hint = "the script alone runs on the first node only: put srun before the command"
        return failed("hosts", f"{ranks} {wrong}", hint)
    per_host = Counter((run.start.host or "").split(".")[0] for run in runs)
    return passed("hosts", ", ".join(f"{per_host[host]} on {host}" for host in seen[:8]))


def check_backend(worlds: Sequence[World], wanted: str | None) -> Check | None:
    """Check that all ranks used one backend; None if no rank names one and nobody asks."""
    said = {run.start.backend: rank for world in worlds for rank, run in world.runs.items()}
    expected = wanted or next((name for name in said if name), None)
    if not expected:
        return None
    wrong = [f"rank {rank} used {name}" for name, rank in said.items() if name not in (None, expected)]
    if wrong:
        return failed(
            "backend", f"{', '.join(wrong[:8])}; expected {expected}", f"set BACKEND={expected} in the script"
        )
    if None in said or not said:
        hint = f"have every rank print it, as in: rank 0/2 start backend={expected}"
        return not_proven("backend", f"rank {said.get(None, 0)} does not say backend=", hint)
    return passed("backend", f"{expected} on all ranks")


def check_ends(worlds: Sequence[World], logs: Logs, job: str) -> Check:
    """Check that every rank printed its end line, after as many steps as the others, with a finite loss."""
    runs = [(rank, run) for world in worlds for rank, run in sorted(world.runs.items())]
    unfinished = [rank for rank, run in runs if run.end is None]
    if len(unfinished) == len(runs):
        return not_proven("ends", "no rank printed an end line", PRINT.replace("start host=node1", "end steps=220"))
    if unfinished:
        evidence = f"rank {_few(unfinished)} printed no end line; {len(runs) - len(unfinished)} of {len(runs)} did"
        return failed("ends", evidence, f"its last lines say how far it came: srunbook explain {job}")
    for rank, run in runs:
        if run.end and run.end.loss is not None and not math.isfinite(run.end.loss):
            return failed("ends", f"rank {rank} ended with loss {run.end.loss}", DIVERGED)
    if logs.not_finite:
        return failed("ends", logs.not_finite, DIVERGED)
    made = []
    for world in worlds:
        steps = {run.end.steps: rank for rank, run in world.runs.items() if run.end}
        if 0 in steps and len(steps) > 1:
            return failed(
                "ends", f"rank {steps[0]} made no step, and others did", "did it get any data? See its output"
            )
        if len(steps) > 1:
            hint = "ranks that train one model make the same number of steps, unless they use Join"
            return not_proven("ends", f"the ranks made different numbers of steps: {_few(list(steps))}", hint)
        made += [f"{step} steps on each rank" for step in steps if step is not None]
    return passed("ends", "; ".join(made[:8]) or "all ranks ended")


def check_parameters(worlds: Sequence[World]) -> Check | None:
    """Check that the ranks of each world ended with the same parameters; None if no rank prints them."""
    found = []
    for world in worlds:
        ends = {rank: run.end.params for rank, run in sorted(world.runs.items()) if run.end}
        said = {rank: params for rank, params in ends.items() if params}
        digits = min(map(len, said.values()), default=0)
        usual = Counter(params[:digits] for params in said.values()).most_common(1)
        odd = [f"rank {rank} has {params[:12]}" for rank, params in said.items() if params[:digits] != usual[0][0]]
        if odd:
            hint = "they trained different models: wrap yours in DistributedDataParallel, change it on all ranks alike"
            return failed("parameters", f"{', '.join(odd[:8])}; the others have {usual[0][0][:12]}", hint)
        silent = [rank for rank in ends if rank not in said]
        if said and silent:
            return not_proven("parameters", f"rank {_few(silent)} does not say params=", "have every rank print it")
        found += [f"{usual[0][0][:12]} on all {len(said)}"] if said else []
    return passed("parameters", "; ".join(found[:8])) if found else None


def _short(node_list: str) -> list[str]:
    try:
        return [node.split(".")[0] for node in expand_hostlist(node_list)] if node_list else []
    except SlurmParseError:
        return []


def _listed(hosts: Sequence[str]) -> str:
    try:
        return compress_hostlist(hosts)
    except SlurmParseError:
        return ",".join(hosts)


def _places(worlds: Sequence[World]) -> str:
    runs = [(rank, run.start.host) for world in worlds for rank, run in sorted(world.runs.items())]
    named = [f"rank {rank}{f' on {host}' if host else ''}" for rank, host in runs[:4]]
    return ", ".join([*named, *([f"and {len(runs) - 4} more"] if runs[4:] else [])])


def _few(values: Sequence[object]) -> str:
    return ", ".join([*map(str, values[:8]), *(["..."] if values[8:] else [])])


def _count(number: int | None, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
