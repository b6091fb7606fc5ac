"""Checks of what the ranks say about themselves in their run records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice

from srunbook.slurm import SlurmParseError, compress_hostlist
from srunbook.verify._artefacts import Artefacts
from srunbook.verify._causes import Cause
from srunbook.verify._job import srun_tasks
from srunbook.verify._logs import RankRun
from srunbook.verify._report import Check, failed, not_proven, passed

NO_RECORDS = "there are no run records"


def check_records(artefacts: Artefacts, runs: Sequence[RankRun]) -> Check:
    """The logs hold run records, whole ones, and of this job."""
    job = artefacts.job
    if not artefacts.logs:
        looked = f"no log was found: there is no {', no '.join(artefacts.searched) or 'file to look for'}"
        if artefacts.results is not None:
            return failed("records", Cause.RANK_MISSING, looked, "did srun write its output elsewhere? See the script")
        where = f"sacct -j {job} --format=WorkDir%100 says where it was submitted: run srunbook verify there"
        return not_proven("records", looked, where)
    damaged = [(log, complaint) for log in artefacts.logs for complaint in log.damaged]
    if damaged:
        log, complaint = damaged[0]
        return failed(
            "records",
            Cause.RECORD_DAMAGED,
            f"{log.name}: {complaint}",
            "two ranks wrote into one line: write each line of output with one call, as sys.stdout.write(line)",
        )
    if not runs:
        names = ", ".join(log.name for log in artefacts.logs)
        return failed(
            "records",
            Cause.RAN_NOTHING,
            f"no rank says in {names} that it started",
            f"see what the job printed: cat {artefacts.logs[0].name}",
        )
    foreign = [run for run in runs if job and run.start.job not in (None, job)]
    if foreign:
        return failed(
            "records",
            Cause.RECORD_DAMAGED,
            f"{foreign[0].log} is of job {foreign[0].start.job}; expected job {job}",
            f"give the number of that job: srunbook verify {foreign[0].start.job}",
        )
    return passed("records", f"{len(runs)} rank{'' if len(runs) == 1 else 's'} in {_logs(artefacts)}")


def check_world(artefacts: Artefacts, runs: Sequence[RankRun]) -> Check:
    """The ranks are those of one world, each one process, and all are there."""
    if not runs:
        return not_proven("world", NO_RECORDS)
    sizes = sorted({run.start.world_size for run in runs})
    size = sizes[-1]
    steps = srun_tasks(artefacts.accounting.last)
    count = Counter(run.start.rank for run in runs)
    if len(sizes) > 1:
        evidence = f"the ranks disagree about the world size: {', '.join(map(str, sizes))}"
        return failed("world", Cause.WORLD_SIZE, evidence, "all processes need the same WORLD_SIZE; see the script")
    started = not steps or any(size % tasks == 0 for tasks in steps)  # a launcher may start several ranks in a task
    if not started or (size == 1 and len(runs) > 1):
        expected = max([len(runs), *steps])
        times = f", {len(runs)} times," if size == 1 and len(runs) > 1 else ""
        return failed(
            "world",
            Cause.WORLD_SIZE,
            f"world size {size}{times} instead of {expected}: {_places(runs)}",
            "rank and world size have to come from the variables of each task: SLURM_PROCID, SLURM_NTASKS",
        )
    twice = next((rank for rank, number in sorted(count.items()) if number > 1), None)
    if twice is not None:
        both = [run for run in runs if run.start.rank == twice]
        return failed(
            "world",
            Cause.RANK_TWICE,
            f"rank {twice} is there {len(both)} times: {_places(both)}",
            "take the rank from SLURM_PROCID in each task, not from the batch script, where it is always 0",
        )
    missing = list(islice((rank for rank in range(size) if rank not in count), 9))
    if missing:
        return _missing(artefacts, runs, size, missing)
    misnamed = _misnamed(artefacts, runs)
    if misnamed:
        return misnamed
    return _one_process_each(runs, size)


def _missing(artefacts: Artefacts, runs: Sequence[RankRun], size: int, missing: Sequence[int]) -> Check:
    names = {log.rank for log in artefacts.logs}
    rank = missing[0]
    if artefacts.logs[0].rank is None:
        which = ", ".join([*map(str, missing[:8]), *(["..."] if missing[8:] else [])])
        what = f"{artefacts.logs[0].name} holds no start record of rank {which}"
    elif rank in names:
        what = f"rank_{rank}.log holds no start record"
    else:
        what = f"rank_{rank}.log is missing"
    return failed(
        "world",
        Cause.RANK_MISSING,
        f"{what}; the other {len(runs)} of {size} ranks are there",
        f"what became of rank {rank}? See the error file of the job, and sacct -j {artefacts.job}",
    )


def _misnamed(artefacts: Artefacts, runs: Sequence[RankRun]) -> Check | None:
    ranks = {log.name: log.rank for log in artefacts.logs}
    for run in runs:
        named = ranks[run.log]
        if named is not None and named != run.start.rank:
            return failed(
                "world",
                Cause.RANK_TWICE,
                f"{run.log} was written by rank {run.start.rank}",
                "the log is named by the task, so rank and SLURM_PROCID differ: make them the same",
            )
    return None


def _one_process_each(runs: Sequence[RankRun], size: int) -> Check:
    by_process: dict[tuple[str, int], list[int]] = {}
    for run in runs:
        by_process.setdefault((run.start.host, run.start.pid), []).append(run.start.rank)
    for (host, pid), ranks in by_process.items():
        if len(ranks) > 1:
            return failed(
                "world",
                Cause.RANK_TWICE,
                f"ranks {ranks[0]} and {ranks[1]} are one process: pid {pid} on {host}",
                "each rank has to be a process of its own; was a log copied?",
            )
    return passed("world", f"world size {size}: {_places(runs)}")


def check_hosts(artefacts: Artefacts, runs: Sequence[RankRun]) -> Check:
    """The ranks ran on all nodes that the job was given, and on no other."""
    rows = artefacts.accounting.last
    if not runs or not rows:
        return not_proven("hosts", "there are no rows of sacct" if runs else NO_RECORDS)
    try:
        given = rows[0].hosts
    except SlurmParseError as error:
        return not_proven("hosts", str(error))
    if not given:
        return not_proven("hosts", "sacct names no nodes of the job")
    if rows[0].nodes not in (None, len(given)):
        return not_proven("hosts", f"sacct counts {rows[0].nodes} nodes and names {_list(given)}: ask again later")
    seen = _hosts(runs)
    known = {name.split(".")[0] for name in given} & {name.split(".")[0] for name in seen}
    same_names = len(known) == len(seen) or not known  # a site may name hosts otherwise than nodes: then count them
    if len(seen) == len(given) and same_names:
        per_host = Counter(run.start.host for run in runs)
        return passed("hosts", ", ".join(f"{per_host[host]} on {host}" for host in seen[:8]))
    ranks = "1 rank" if len(runs) == 1 else f"{len(runs)} ranks"
    both = "both ranks" if len(runs) == 2 else ranks
    return failed(
        "hosts",
        Cause.HOSTS,
        f"{both if len(seen) == 1 else ranks} ran on {_list(seen)}; the job was given {_list(given)}",
        "start the tasks on all nodes: srun --ntasks-per-node=N, without --nodes or -w of its own",
    )


def check_backend(runs: Sequence[RankRun], wanted: str | None) -> Check:
    """All ranks used the backend that was asked for, or at least the same one."""
    if not runs:
        return not_proven("backend", NO_RECORDS)
    expected = wanted or Counter(run.start.backend for run in runs).most_common(1)[0][0]
    wrong = [run.start for run in runs if run.start.backend != expected]
    if wrong:
        ranks = ", ".join(f"rank {start.rank} used {start.backend}" for start in wrong[:8])
        why = "as --backend says" if wanted else "like the others"
        return failed(
            "backend",
            Cause.BACKEND,
            f"{ranks}; expected {expected}, {why}",
            f"set BACKEND={expected} in the script, or give --backend the one you mean",
        )
    kinds = sorted({f"{run.start.framework}, {run.start.device}" for run in runs})
    return passed("backend", f"{expected} on all ranks ({'; '.join(kinds)})")


def check_ends(runs: Sequence[RankRun]) -> Check:
    """Every rank came to its end, and made steps."""
    if not runs:
        return not_proven("ends", NO_RECORDS)
    open_ended = sorted(run.start.rank for run in runs if run.end is None)
    if open_ended:
        run = next(run for run in runs if run.start.rank == open_ended[0])
        return failed(
            "ends",
            Cause.UNFINISHED,
            f"rank {', '.join(map(str, open_ended))} started and has no end record",
            f"its last lines say how far it came: tail {run.log}",
        )
    steps = sorted({run.end.steps for run in runs if run.end})
    if steps[-1] == 0:
        return failed(
            "ends",
            Cause.RAN_NOTHING,
            "all ranks ended with 0 steps",
            f"see what it printed: cat {runs[0].log}; after a resume there may have been nothing left to do",
        )
    return passed("ends", f"{steps[0] if len(steps) == 1 else f'{steps[0]} to {steps[-1]}'} steps on each rank")


def check_parameters(runs: Sequence[RankRun]) -> Check:
    """All ranks ended with the same parameters."""
    digests = {run.start.rank: run.end.params_sha256 for run in runs if run.end}
    without = sorted(rank for rank, digest in digests.items() if digest is None)
    if not digests:
        return not_proven("parameters", "there are no end records")
    if without:
        return not_proven("parameters", f"rank {', '.join(map(str, without[:8]))} gave no hash of parameters")
    (usual, number), *others = Counter(digests.values()).most_common()
    if not others:
        return passed(
            "parameters", f"{_short(usual)} on all {number}" if number > 1 else f"{_short(usual)} on the one rank"
        )
    odd = [f"rank {rank} has {_short(digest)}" for rank, digest in sorted(digests.items()) if digest != usual]
    rest = sorted(rank for rank, digest in digests.items() if digest == usual)
    whose = f"rank {rest[0]} has" if len(rest) == 1 else f"the other {len(rest)} have"
    return failed(
        "parameters",
        Cause.PARAMETERS,
        f"{', '.join(odd[:8])}; {whose} {_short(usual)}",
        "the ranks did not train one model: wrap it in DistributedDataParallel, and change nothing on one rank alone",
    )


def _hosts(runs: Iterable[RankRun]) -> list[str]:
    return list(dict.fromkeys(run.start.host for run in sorted(runs, key=lambda run: run.start.rank)))


def _list(hosts: Sequence[str]) -> str:
    try:
        return compress_hostlist(hosts)
    except SlurmParseError:
        return ",".join(hosts)


def _places(runs: Sequence[RankRun]) -> str:
    ordered = sorted(runs, key=lambda run: (run.start.rank, run.start.host))
    named = [f"rank {run.start.rank} is pid {run.start.pid} on {run.start.host}" for run in ordered[:4]]
    return ", ".join([*named, *([f"and {len(runs) - 4} more"] if runs[4:] else [])])


def _logs(artefacts: Artefacts) -> str:
    logs = artefacts.logs
    return logs[0].name if len(logs) == 1 else f"{logs[0].name} and {len(logs) - 1} more"


def _short(digest: str | None) -> str:
    return f"{(digest or '')[:12]}..."
