"""Check that the ranks are those of the steps that Slurm started: one world each, each rank one process of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice

from srunbook.ranklog import RankStart
from srunbook.verify._artefacts import Artefacts
from srunbook.verify._causes import Cause
from srunbook.verify._launches import Launch
from srunbook.verify._matching import World
from srunbook.verify._report import Check, failed, not_proven, passed
from srunbook.verify._words import count, few, places, silent

NO_LINES = "found no start line"


def check_world(artefacts: Artefacts, world: World) -> Check:
    """Check that each step is one world, that all its ranks are there, and that each is one process."""
    stray = _strays(artefacts, world)
    if stray or not world.launches:
        return stray or not_proven("world", NO_LINES)
    launches = world.launches
    wrong = _at_once(world) or _surplus(world) or _moved(world)
    wrong = wrong or _first(_missing(artefacts, launch, world.attempts) for launch in launches)
    wrong = wrong or _extra(artefacts, world) or _misnamed(artefacts, world)
    wrong = wrong or _first(_one_process_each(launch) for launch in launches)
    return wrong or _unstarted(artefacts, world) or _unproven(world) or _passed(world)


def _first(checks: Iterable[Check | None]) -> Check | None:
    return next(filter(None, checks), None)


def _strays(artefacts: Artefacts, world: World) -> Check | None:
    if not world.found.strays:
        return None
    line, log = world.found.strays[0]
    lines = (found for log in artefacts.logs for found in log.rank_lines)
    if any(isinstance(found, RankStart) and found.rank == line.rank for found in lines):
        evidence = f"rank {line.rank} ended more often than it started in {log}"
        return failed("world", Cause.RANK_TWICE, evidence, "did two processes take this rank, or was the log changed?")
    evidence = f"rank {line.rank} ended and has no start line in {log}"
    return failed("world", Cause.RANK_MISSING, evidence, "was the log cut, or is the line of another job?")


def _moved(world: World) -> Check | None:
    for run in world.runs:
        size = run.start.world_size
        if run.end and run.end.world_size != size:
            evidence = f"rank {run.start.rank} started in a world of {size} and ended in one of {run.end.world_size}"
            advice = f"did two jobs write into {run.log}? Print both lines alike"
            return failed("world", Cause.WORLD_SIZE, evidence, advice)
    return None


def _at_once(world: World) -> Check | None:
    for first, second, rank, log in world.found.at_once:
        judged = [any(launch is one for launch in world.launches) for one in (first, second)]
        if judged == [False, True]:  # two steps at once are both judged
            evidence = f"two processes of rank {rank} ran at once, as {log} says"
            advice = "take the rank from SLURM_PROCID in each task, not from the batch script, where it is always 0"
            return failed("world", Cause.RANK_TWICE, evidence, advice)
    return None


def _surplus(world: World) -> Check | None:
    if not world.surplus:
        return None
    launch = world.surplus[0]
    size, all_sizes = launch.world_size, sorted({launch.world_size for launch in world.launches})
    if len(all_sizes) > 1 and len(world.launches) > len(world.steps):
        evidence = f"the ranks disagree about the world size: {', '.join(map(str, all_sizes))}"
        return failed("world", Cause.WORLD_SIZE, evidence, "all processes need the same WORLD_SIZE; see the script")
    alike = [other for other in world.launches if other.world_size == size]
    fits = any(step.fits(launch) for step in world.steps)
    if size > 1 and fits:
        rank = Counter(rank for other in alike for rank in sorted(other.runs)).most_common(1)[0][0]
        both = [other.runs[rank] for other in alike if rank in other.runs]
        return failed(
            "world",
            Cause.RANK_TWICE,
            f"rank {rank} is there {len(both)} times: {places(both)}",
            "take the rank from SLURM_PROCID in each task, not from the batch script, where it is always 0",
        )
    times = f", {len(alike)} times," if len(alike) > 1 else ""
    step = max(world.steps, key=lambda step: step.tasks or 0)
    divides = step.tasks is not None and size % step.tasks == 0
    where = f" on {count(step.nodes, 'node')}" if divides and step.nodes and not fits else ""
    return failed(
        "world",
        Cause.WORLD_SIZE,
        f"world size {size}{times} instead of {step.tasks or len(world.runs)}{where}: {places(world.runs)}",
        "rank and world size have to come from the variables of each task: SLURM_PROCID, SLURM_NTASKS",
    )


def _missing(artefacts: Artefacts, launch: Launch, attempts: int) -> Check | None:
    size = launch.world_size
    missing = list(islice((rank for rank in range(size) if rank not in launch.runs), 9))
    if not missing:
        return None
    rank, names = missing[0], {log.rank for log in artefacts.logs}
    attempt = " in the last attempt" if attempts > 1 else ""
    if artefacts.logs[0].rank is None:
        what = f"{artefacts.logs[0].name} has no start line of rank {few(missing)}{attempt}"
    elif rank in names:
        what = f"rank_{rank}.log has no start line{attempt}"
    else:
        what = f"rank_{rank}.log is missing"
    return failed(
        "world",
        Cause.RANK_MISSING,
        f"{what}; the other {len(launch.runs)} of {size} ranks are there",
        f"what became of rank {rank}? See the error file of the job, and sacct -j {artefacts.job}",
    )


def _extra(artefacts: Artefacts, world: World) -> Check | None:
    size = max(launch.world_size for launch in world.launches)
    for log in artefacts.logs:
        if log.rank is None:
            continue
        empty = not any(isinstance(line, RankStart) for line in log.rank_lines)
        if empty or log.rank >= size:
            what = "has no start line" if empty else "is there"
            evidence = f"{log.name} {what}; the world has {count(size, 'rank')}"
            return failed("world", Cause.RANK_MISSING, evidence, "is this log of another run? Then remove it")
    return None


def _misnamed(artefacts: Artefacts, world: World) -> Check | None:
    named = {log.name: log.rank for log in artefacts.logs}
    wrong = [run for run in world.runs if named[run.log] not in (None, run.start.rank)]
    if not wrong:
        return None
    first = min(wrong, key=lambda run: (named[run.log] or 0, run.log))
    return failed(
        "world",
        Cause.RANK_TWICE,
        f"{first.log} was written by rank {first.start.rank}",
        "the log is named by the task, so rank and SLURM_PROCID differ: make them the same",
    )


def _one_process_each(launch: Launch) -> Check | None:
    by_process: dict[tuple[str, int], list[int]] = {}
    for rank, run in sorted(launch.runs.items()):
        if run.start.host is not None and run.start.pid is not None:
            by_process.setdefault((run.start.host, run.start.pid), []).append(rank)
    for (host, pid), ranks in by_process.items():
        if len(ranks) > 1:
            return failed(
                "world",
                Cause.RANK_TWICE,
                f"ranks {ranks[0]} and {ranks[1]} are one process: pid {pid} on {host}",
                "each rank has to be a process of its own; was a log copied?",
            )
    return None


def _one_place(launch: Launch) -> str:
    """Say which two tasks of a step name one place on their node; nothing where none do.

    Launchers, and components that share a node, each count their ranks from 0.
    """
    taken: dict[tuple[str, int], int] = {}
    for rank, run in sorted(launch.runs.items()):
        host, place = run.start.host, run.start.local_rank
        if host is not None and place is not None and taken.setdefault((host, place), rank) != rank:
            return f"ranks {taken[host, place]} and {rank} both say local_rank={place} on {host}"
    return ""


def _unstarted(artefacts: Artefacts, world: World) -> Check | None:
    """Say that Slurm may not have started each rank; those of one node, the script itself may have started."""
    for launch, step in world.matched:
        if not step.fits(launch):
            evidence = f"{step.identity} left out the first node, where mpirun may have started all {launch.world_size}"
            return not_proven("world", f"{evidence} ranks: Slurm does not count them", "start the ranks with srun")
        nodes = max(len(launch.hosts), sum(row.nodes or 0 for row in artefacts.accounting.last if not row.step))
        if artefacts.accounting.rows and not step.identity and nodes > 1:
            evidence = f"the ranks ran on {count(nodes, 'node')}, and sacct has no step of srun"
            return not_proven("world", evidence, "start the ranks with srun")
        crowded = _one_place(launch) if step.tasks == launch.world_size and len(artefacts.accounting.parts) < 2 else ""
        if crowded:
            return not_proven("world", crowded, "local_rank= counts the tasks of a node: take it from SLURM_LOCALID")
    return None


def _unproven(world: World) -> Check | None:
    """Say what the lines leave open: nothing is wrong, and yet the last attempt may have been another world."""
    if world.attempts > 1 and world.found.late:
        line, log = world.found.late[0]
        evidence = f"rank {line.rank} ended once more after the last attempt had begun, in {log}"
        return not_proven("world", evidence, "did two processes take this rank, or was the log changed?")
    repeated = world.found.repeated
    if len(repeated) >= world.attempts:
        rank, times = repeated[0]
        evidence = (
            f"rank {rank} started {times} times, and other ranks did not: two processes may have been rank {rank}"
        )
        return not_proven("world", evidence, "the pids of its start lines, and the error file, say which it was")
    if not all(launch.sure for launch in world.launches):
        evidence = (
            "the ranks did not start equally often, and their logs do not tell which lines are of the last attempt"
        )
        return not_proven("world", evidence, "have all ranks print into the log of the job, or remove what is older")
    unknown = [step for _, step in world.matched if step.identity and step.tasks is None]
    if unknown:
        return not_proven("world", f"sacct does not say how many tasks {unknown[0].identity} had")
    largest = max((step.tasks or 0 for _, step in world.matched), default=0)
    larger = [step for step in world.silent if (step.tasks or 0) > largest]
    if larger:
        evidence = f"{larger[0].identity} of {larger[0].tasks} tasks printed no rank line, and is the largest step"
        return not_proven("world", evidence, "have all its ranks print their lines, as those of the other steps do")
    return None


def _passed(world: World) -> Check:
    evidence = [f"world size {launch.world_size}: {places(launch.runs.values())}" for launch in world.launches]
    quiet = [step for step in world.silent if step.identity]
    if quiet:
        evidence.append(f"{few([step.identity for step in quiet])} printed no rank line")
    unsaid = [
        silent(world.runs, "start", name, [getattr(run.start, name) for run in world.runs]) for name in ("host", "pid")
    ]
    if any(unsaid) and max(launch.world_size for launch in world.launches) > 1:
        evidence.append(f"{' and '.join(filter(None, unsaid))}, so two ranks of one process would not show")
    return passed("world", "; ".join(evidence))
