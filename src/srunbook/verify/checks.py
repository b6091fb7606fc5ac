"""Check what Slurm says of a job, and what its ranks say."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice

from srunbook.slurm import Accounting, SacctRow, expand_hostlist
from srunbook.verify.logs import PRINT, Logs, World
from srunbook.verify.report import Check, Verdict, failed, not_proven, passed
from srunbook.verify.results import DIVERGED

STATUSES = {
    75: "a program that saves at a signal ends with 75: submit it again, with the same --checkpoint-dir",
    78: "78 says that it would only fail again in the same way: look into its log",
}
"""What to do about the exit statuses of `srunbook.signals`."""

STATES = {
    "CANCELLED": "somebody ended it: sacct with --format=JobID,State%30 says who; then submit again",
    "TIMEOUT": "its time was up: ask for more with --time, or save before the end with --signal=USR1@300",
    "PREEMPTED": "other jobs took its nodes: submit again, with --requeue if the program can resume",
}
"""What to do where the state of a job says why it ended; its steps are CANCELLED in other cases, too."""

OWN_WORLDS = (
    "under torchrun, --nnodes is missing or --standalone is given; without torchrun, take rank and world size from "
    "SLURM_PROCID and SLURM_NTASKS in each task, not in the batch script"
)
NO_SRUN = "the script alone runs on the first node only: put srun before the command"


# What Slurm says


def check_job(job: str, accounting: Accounting) -> Check:
    """Check that a job, an element or a component is COMPLETED 0:0."""
    why = f"squeue -j {job} --format='%T %r'"
    if not accounting.rows:
        if accounting.queued:
            return not_proven("job", f"{accounting.queued}, says squeue", f"wait: {why}")
        if accounting.problem:
            return not_proven("job", accounting.problem, "run srunbook verify on a login node, where sacct works")
        hint = "look for its number: sacct --starttime=now-7days; a job of another cluster needs SLURM_CLUSTERS=NAME"
        return not_proven("job", f"sacct knows no job {job}", hint)
    *earlier, row = [attempt[0] for attempt in accounting.attempts]
    again = f"; attempt {len(earlier) + 1}, before it {_few([attempt.state for attempt in earlier])}" if earlier else ""
    where = f"{_count(row.nodes, 'node')}{f' ({row.node_list})' if row.node_list else ''}"
    where += f", elapsed {row.elapsed or 'unknown'}"
    if not row.ended:
        hint = f"verify it when it has ended; {why} says why it waits"
        return not_proven("job", f"{row.state}, {where}{again}", hint)
    evidence = f"{row.ending}, {where}, says sacct{again}"
    if _fine(row):
        return passed("job", evidence)
    advice = STATES.get(row.state) or _hint(job, row)
    if not row.node_list:
        advice = f"it never started: submit it again; while it waits, {why} says why"
    return failed("job", f"{evidence}; expected COMPLETED 0:0", advice)


def check_steps(job: str, accounting: Accounting, logs: Logs) -> Check:
    """Check that every step is COMPLETED 0:0 or was cut off by the script's end, and that srun started one."""
    job_row, *steps = accounting.attempts[-1]
    wrong = [row for row in steps if not _fine(row) and not (_fine(job_row) and _outlived_script(row, steps))]
    if wrong:
        named = ", ".join(f"{row.identity} is {row.ending}" for row in wrong[:8])
        hint = "the line above says what to do" if job_row.state in STATES else _hint(job, wrong[0])
        return failed("steps", f"{named}; expected COMPLETED 0:0", hint)
    if not _used_srun(steps) and (job_row.nodes or 1) > 1 and not logs.started:
        return not_proven("steps", f"{_count(job_row.nodes, 'node')}, and no step of srun", NO_SRUN)
    return passed("steps", _few([f"{row.identity} {row.ending}" for row in steps]) or "no step, one node")


def _fine(row: SacctRow) -> bool:
    return row.ending == "COMPLETED 0:0"


def _outlived_script(row: SacctRow, steps: Sequence[SacctRow]) -> bool:
    """Whether Slurm cancelled a step that still ran when the batch script ended, such as one in the background."""
    ends = [step.columns.get("End", "") for step in steps if step.step == "batch"]
    return row.state == "CANCELLED" and any(end and row.columns.get("End", "") >= end for end in ends)


def _used_srun(rows: Sequence[SacctRow]) -> bool:
    return any(row.step[:1].isdigit() for row in rows)


def _hint(job: str, row: SacctRow) -> str:
    """Say what to do about a row that is not COMPLETED 0:0."""
    return STATUSES.get(row.exit_code, f"look for the first error: srunbook explain {job}")


# What the ranks say


def check_ranks(
    job: str, worlds: Sequence[World], accounting: Accounting, logs: Logs, backend: str | None
) -> list[Check]:
    """Make all checks of rank lines, in the worlds of the last attempt."""
    if any("+" in part for part in accounting.parts):
        evidence = "a step of a heterogeneous job may use several components, and sacct doesn't say which"
        return [not_proven("ranks", evidence, "read the ranks' start and end lines in the job's log")]
    lines = _check_lines(job, worlds, logs)
    if lines.verdict is not Verdict.PASSED:
        return [lines]
    steps = steps_of(accounting)
    world = _check_world(worlds, steps)
    hosts = _check_hosts(worlds, accounting) if accounting.rows and world.verdict is Verdict.PASSED else None
    checks = (lines, world, hosts, _check_backend(worlds, backend), _check_ends(job, worlds))
    return [check for check in (*checks, _check_parameters(worlds)) if check]


def steps_of(accounting: Accounting) -> list[SacctRow]:
    """Return the steps that srun started in the last attempt."""
    return [row for row in accounting.last if row.step.isdecimal()]


def latest(worlds: Sequence[World], accounting: Accounting) -> list[World]:
    """Leave out worlds of earlier attempts of a job that was requeued: no step of the last one is theirs."""
    if all(len(part.attempts) == 1 for part in accounting.parts.values()):
        return list(worlds)
    steps = steps_of(accounting)
    kept: list[World] = []
    taken: Counter[int] = Counter()
    for world in reversed(worlds):
        fitting = sum(world.size % step.tasks == 0 for step in steps if step.tasks)
        if taken[world.size] < max(fitting, 1):
            kept.append(replace(world, twins=False, moved=False))  # the other one may be of an earlier attempt
            taken[world.size] += 1
    return kept[::-1]


def _check_lines(job: str, worlds: Sequence[World], logs: Logs) -> Check:
    """Check that the logs hold rank lines of the job."""
    name = "rank lines"
    if logs.problem:
        return not_proven(name, *logs.problem)
    if not logs.read:
        return not_proven(name, f"found no log of job {job}", "name it: --log FILE")
    read = f"{logs.read[0]}{f' and {len(logs.read) - 1} more' if logs.read[1:] else ''}"
    if not logs.started:
        return not_proven(name, f"no rank printed a start line in {read}", PRINT)
    if not worlds:
        others = ", ".join(sorted(logs.jobs)[:8])
        hint = f"srunbook verify {others}, or name the log of job {job}: --log FILE"
        return not_proven(name, f"{read}: only lines of job {others}", hint)
    return passed(name, f"{_count(sum(len(world.runs) for world in worlds), 'rank')} in {read}")


def _check_world(worlds: Sequence[World], steps: Sequence[SacctRow]) -> Check:
    """Check that the ranks of each step are one world, and that all of them are there."""
    for world in worlds:
        fitting = [step for step in steps if _fits(step, world)]
        if twins := _twins(world, worlds, fitting):
            return twins
        if steps and not fitting:
            return _misfit(world, worlds, steps)
    for world in worlds:
        missing = list(islice((rank for rank in range(world.size) if rank not in world.runs), 9))
        if missing:
            evidence = f"{len(world.runs)} of {world.size} ranks printed a start line; not rank {_few(missing)}"
            return not_proven("world", evidence, f"is its output in another file? Give each: --log FILE. Or {PRINT}")
    most = max((step.tasks or 0 for world in worlds for step in steps if _fits(step, world)), default=0)
    silent = next((step for step in steps if (step.tasks or 0) > most > 0), None)
    if silent:
        return not_proven("world", f"{silent.identity} has {silent.tasks} tasks and printed no rank lines", PRINT)
    return passed("world", "; ".join(f"world of {world.size}: {_places([world])}" for world in worlds[:8]))


def _fits(step: SacctRow, world: World) -> bool:
    """Return whether the tasks of a step can be these ranks: one each, or each task a launcher of as many."""
    return bool(step.tasks and world.size % step.tasks == 0 and len(world.hosts) <= len(step.hosts or world.hosts))


def _twins(world: World, worlds: Sequence[World], fitting: Sequence[SacctRow]) -> Check | None:
    """Check that no two processes were the same rank, unless each was of a step of its own."""
    if not (world.twins or world.moved):
        return None
    evidence = f"{world.times} worlds of {_count(world.size, 'rank')}: {_places(worlds)}"
    if world.times > max(len(fitting), 1):
        return failed("world", evidence, OWN_WORLDS)
    if world.twins and max((step.tasks or 0 for step in fitting), default=1) > 1:
        return not_proven("world", f"at the same time, {evidence}", f"run one step after the other; or {OWN_WORLDS}")
    return None


def _misfit(world: World, worlds: Sequence[World], steps: Sequence[SacctRow]) -> Check:
    """Say why no step can be these ranks."""
    step = max(steps, key=lambda step: step.tasks or 0)
    has = f"{step.identity} has {_count(step.tasks, 'task')} on {_count(len(step.hosts), 'node')}"
    if not step.tasks or world.size % step.tasks == 0 or len(step.hosts) == 1:  # or the script started them
        evidence = f"a world of {world.size} on {_count(len(world.hosts), 'node')}, and {has}"
        return not_proven("world", evidence, "Slurm counts only ranks that srun starts: start them with srun")
    return failed("world", f"a world of {_count(world.size, 'rank')}, and {has}: {_places(worlds)}", OWN_WORLDS)


def _check_hosts(worlds: Sequence[World], accounting: Accounting) -> Check | None:
    """Check that the ranks ran on all nodes that they were given; None if they name no hosts."""
    hosts = Counter(host.split(".")[0] for w in worlds for run in w.runs.values() if (host := run.start.host))
    if not hosts:
        return None
    allocated = list(dict.fromkeys(node for row in accounting.last if not row.step for node in _short(row.node_list)))
    if hosts.keys().isdisjoint(allocated):
        if len(hosts) == len(allocated):
            return None  # the site gives its hosts other names
        hint = "have every rank print Slurm's name of its node: host=$SLURMD_NODENAME"
        return not_proven("hosts", f"the ranks name {_few(hosts)}, Slurm {_few(allocated)}", hint)
    if {*hosts} != {*allocated}:
        evidence = f"{_count(hosts.total(), 'rank')} ran on {_few(hosts)}; the job was given {_few(allocated)}"
        hint = "start the tasks on all nodes: srun --ntasks-per-node=N, without --nodes or -w of its own"
        return failed("hosts", evidence, hint if _used_srun(accounting.last) else NO_SRUN)
    return passed("hosts", ", ".join(f"{count} on {host}" for host, count in islice(hosts.items(), 8)))


def _check_backend(worlds: Sequence[World], wanted: str | None) -> Check | None:
    """Check that all ranks used one backend; None if no rank names one and nobody asks."""
    backends = {run.start.backend: rank for world in worlds for rank, run in world.runs.items()}
    expected = wanted or next(filter(None, backends), None)
    if not expected:
        return None
    wrong = [f"rank {rank} used {name}" for name, rank in backends.items() if name not in (None, expected)]
    if wrong:
        hint = f"set BACKEND={expected} in the script"
        return failed("backend", f"{', '.join(wrong[:8])}; expected {expected}", hint)
    if None in backends:
        hint = f"have every rank print it, as in: rank 0/2 start backend={expected}"
        return not_proven("backend", f"rank {backends[None]} does not say backend=", hint)
    return passed("backend", f"{expected} on all ranks")


def _check_ends(job: str, worlds: Sequence[World]) -> Check:
    """Check that every rank printed its end line, after as many steps as the others, with a finite loss."""
    runs = [(rank, run.end) for world in worlds for rank, run in sorted(world.runs.items())]
    unfinished = [rank for rank, end in runs if end is None]
    if len(unfinished) == len(runs):
        return not_proven("ends", "no rank printed an end line", PRINT.replace("start host=node1", "end steps=220"))
    if unfinished:
        evidence = f"rank {_few(unfinished)} printed no end line; {len(runs) - len(unfinished)} of {len(runs)} did"
        return failed("ends", evidence, f"its last lines say how far it came: srunbook explain {job}")
    for rank, end in runs:
        if end and end.loss is not None and not math.isfinite(end.loss):
            return failed("ends", f"rank {rank} ended with loss {end.loss}", DIVERGED)
    return _check_step_counts(worlds)


def _check_step_counts(worlds: Sequence[World]) -> Check:
    counts = []
    for world in worlds:
        steps = {run.end.steps: rank for rank, run in world.runs.items() if run.end}
        if 0 in steps and len(steps) > 1:
            evidence = f"rank {steps[0]} made no step, and others did"
            return failed("ends", evidence, "did it get any data? See its output")
        if len(steps) > 1:
            hint = "ranks that train one model make the same number of steps, unless they use Join"
            return not_proven("ends", f"the ranks made different numbers of steps: {_few(list(steps))}", hint)
        counts += [f"{step} steps on each rank" for step in steps if step is not None]
    return passed("ends", "; ".join(counts[:8]) or "all ranks ended")


def _check_parameters(worlds: Sequence[World]) -> Check | None:
    """Check that the ranks of each world ended with the same parameters; None if no rank prints them."""
    sums = []
    for world in worlds:
        ends = {rank: run.end.params for rank, run in sorted(world.runs.items()) if run.end}
        hashes = {rank: params for rank, params in ends.items() if params}
        if not hashes:
            continue
        digits = min(map(len, hashes.values()))
        [(usual, _)] = Counter(params[:digits] for params in hashes.values()).most_common(1)
        odd = [f"rank {rank} has {params[:12]}" for rank, params in hashes.items() if params[:digits] != usual]
        if odd:
            hint = "they trained different models: wrap yours in DistributedDataParallel, change it on all ranks alike"
            return failed("parameters", f"{', '.join(odd[:8])}; the others have {usual[:12]}", hint)
        silent = [rank for rank in ends if rank not in hashes]
        if silent:
            return not_proven("parameters", f"rank {_few(silent)} does not say params=", "have every rank print it")
        sums.append(f"{usual[:12]} on all {len(hashes)}")
    return passed("parameters", "; ".join(sums[:8])) if sums else None


# Words


def _short(node_list: str) -> list[str]:
    return [node.split(".")[0] for node in expand_hostlist(node_list)]


def _places(worlds: Sequence[World]) -> str:
    runs = [(rank, run.start.host) for world in worlds for rank, run in sorted(world.runs.items())]
    named = [f"rank {rank}{f' on {host}' if host else ''}" for rank, host in runs[:4]]
    return ", ".join([*named, *([f"and {len(runs) - 4} more"] if runs[4:] else [])])


def _few(values: Iterable[object]) -> str:
    shown = [*map(str, values)]
    return ", ".join([*shown[:8], *(["..."] if shown[8:] else [])])


def _count(number: int | None, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
