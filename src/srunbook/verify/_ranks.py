"""Check what the ranks say about themselves in their rank lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice

from srunbook.ranklog import RankStart
from srunbook.slurm import SlurmParseError, compress_hostlist
from srunbook.verify._artefacts import Artefacts
from srunbook.verify._causes import Cause
from srunbook.verify._job import srun_tasks
from srunbook.verify._logs import RankRun
from srunbook.verify._report import Check, failed, not_proven, passed

NO_LINES = "found no start line"


def check_rank_lines(artefacts: Artefacts, runs: Sequence[RankRun]) -> Check:
    """Check that the logs hold rank lines, readable ones, and of this job."""
    job = artefacts.job
    if not artefacts.logs:
        looked = f"found no log: there is no {', no '.join(artefacts.searched) or 'file to look for'}"
        if artefacts.results is not None:
            return failed(
                "rank lines", Cause.RANK_MISSING, looked, "did srun write its output elsewhere? See the script"
            )
        where = f"sacct -j {job} --format=WorkDir%100 says where it was submitted: run srunbook verify there"
        return not_proven("rank lines", looked, where)
    damaged = [(log, complaint) for log in artefacts.logs for complaint in log.damaged]
    if damaged:
        log, complaint = damaged[0]
        return failed(
            "rank lines",
            Cause.RANK_LINE_DAMAGED,
            f"{log.name}: {complaint}",
            "did two ranks write into one line? Write each line with one call, as sys.stdout.write(line) does",
        )
    if not runs:
        names = ", ".join(log.name for log in artefacts.logs)
        return failed(
            "rank lines",
            Cause.RAN_NOTHING,
            f"found no start line in {names}",
            f"see what the job printed: cat {artefacts.logs[0].name}",
        )
    foreign = [run for run in runs if job and run.start.job not in (None, job)]
    if foreign:
        return failed(
            "rank lines",
            Cause.RANK_LINE_DAMAGED,
            f"{foreign[0].log} is of job {foreign[0].start.job}; expected job {job}",
            f"give the number of that job: srunbook verify {foreign[0].start.job}",
        )
    return passed("rank lines", f"{len(runs)} rank{'' if len(runs) == 1 else 's'} in {_logs(artefacts)}")


def check_world(artefacts: Artefacts, runs: Sequence[RankRun]) -> Check:
    """Check that the ranks are those of one world, each one process, and that all are there."""
    if not runs:
        return not_proven("world", NO_LINES)
    sizes = sorted({run.start.world_size for run in runs})
    size = sizes[-1]
    steps = srun_tasks(artefacts.accounting.last)
    count = Counter(run.start.rank for run in runs)
    if len(sizes) > 1:
        evidence = f"the ranks disagree about the world size: {', '.join(map(str, sizes))}"
        return failed("world", Cause.WORLD_SIZE, evidence, "all processes need the same WORLD_SIZE; see the script")
    moved = next((run for run in runs if run.end and run.end.world_size != size), None)
    if moved and moved.end:
        evidence = f"rank {moved.start.rank} started in a world of {size} and ended in one of {moved.end.world_size}"
        return failed(
            "world", Cause.WORLD_SIZE, evidence, f"did two jobs write into {moved.log}? Print both lines alike"
        )
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
        what = f"{artefacts.logs[0].name} has no start line of rank {_few(missing)}"
    elif rank in names:
        what = f"rank_{rank}.log has no start line"
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
        if run.start.host is not None and run.start.pid is not None:
            by_process.setdefault((run.start.host, run.start.pid), []).append(run.start.rank)
    for (host, pid), ranks in by_process.items():
        if len(ranks) > 1:
            return failed(
                "world",
                Cause.RANK_TWICE,
                f"ranks {ranks[0]} and {ranks[1]} are one process: pid {pid} on {host}",
                "each rank has to be a process of its own; was a log copied?",
            )
    silent = [_silent(runs, "start", name, [getattr(run.start, name) for run in runs]) for name in ("host", "pid")]
    remark = f"; {' and '.join(filter(None, silent))}, so two ranks of one process would not show"
    return passed("world", f"world size {size}: {_places(runs)}{remark if any(silent) and size > 1 else ''}")


def check_hosts(artefacts: Artefacts, runs: Sequence[RankRun]) -> Check:
    """Check that the ranks ran on all nodes that the job was given, and on no other."""
    rows = artefacts.accounting.last
    if not runs:
        return not_proven("hosts", NO_LINES)
    if silent := _silent(runs, "start", "host", [run.start.host for run in runs]):
        return not_proven("hosts", silent, _print("start", "host"))
    if not rows:
        return not_proven("hosts", "sacct gave no rows")
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
    """Check that all ranks used the backend that was asked for, or at least the same one."""
    if not runs:
        return not_proven("backend", NO_LINES)
    said = [run.start for run in runs if run.start.backend is not None]
    usual = Counter(start.backend for start in said).most_common(1)
    expected = wanted or (usual[0][0] if usual else None)
    wrong = [start for start in said if start.backend != expected]
    if wrong:
        ranks = ", ".join(f"rank {start.rank} used {start.backend}" for start in wrong[:8])
        why = "as --backend says" if wanted else "like the others"
        return failed(
            "backend",
            Cause.BACKEND,
            f"{ranks}; expected {expected}, {why}",
            f"set BACKEND={expected} in the script, or give --backend the one you mean",
        )
    if silent := _silent(runs, "start", "backend", [run.start.backend for run in runs]):
        return not_proven("backend", silent, _print("start", "backend"))
    kinds = sorted({", ".join(filter(None, [start.framework, start.device])) for start in said} - {""})
    what = f" ({'; '.join(kinds)})" if kinds else ""
    return passed("backend", f"{expected} on all ranks{what}")


def check_ends(runs: Sequence[RankRun]) -> Check:
    """Check that every rank came to its end, and made steps."""
    if not runs:
        return not_proven("ends", NO_LINES)
    open_ended = sorted(run.start.rank for run in runs if run.end is None)
    if open_ended:
        run = next(run for run in runs if run.start.rank == open_ended[0])
        return failed(
            "ends",
            Cause.UNFINISHED,
            f"rank {_few(open_ended)} started and has no end line",
            f"its last lines say how far it came: tail {run.log}",
        )
    steps = [run.end.steps for run in runs if run.end]
    if silent := _silent(runs, "end", "steps", steps):
        return not_proven("ends", f"all ranks ended, but {silent}", _print("end", "steps"))
    known = [step for step in steps if step is not None]
    fewest, most = min(known), max(known)
    if most == 0:
        return failed(
            "ends",
            Cause.RAN_NOTHING,
            "all ranks ended with 0 steps",
            f"see what it printed: cat {runs[0].log}; after a resume there may have been nothing left to do",
        )
    return passed("ends", f"{most if fewest == most else f'{fewest} to {most}'} steps on each rank")


def check_parameters(runs: Sequence[RankRun]) -> Check:
    """Check that all ranks ended with the same parameters."""
    ended = [run for run in runs if run.end]
    if not ended:
        return not_proven("parameters", "found no end line")
    digests = {run.start.rank: run.end.params for run in ended if run.end and run.end.params}
    shortest = min(map(len, digests.values()), default=0)
    digests = {rank: digest[:shortest] for rank, digest in sorted(digests.items())}
    usual = Counter(digests.values()).most_common(1)[0][0] if digests else ""
    odd = [f"rank {rank} has {_short(digest)}" for rank, digest in digests.items() if digest != usual]
    rest = [rank for rank, digest in digests.items() if digest == usual]
    if odd:
        whose = f"rank {rest[0]} has" if len(rest) == 1 else f"the other {len(rest)} have"
        return failed(
            "parameters",
            Cause.PARAMETERS,
            f"{', '.join(odd[:8])}; {whose} {_short(usual)}",
            "the ranks did not train one model: wrap it in DistributedDataParallel, change nothing on one rank alone",
        )
    if silent := _silent(ended, "end", "params", [run.end.params for run in ended if run.end]):
        return not_proven("parameters", silent, _print("end", "params"))
    return passed("parameters", f"{_short(usual)} on {f'all {len(rest)}' if len(rest) > 1 else 'the one rank'}")


def _silent(runs: Sequence[RankRun], kind: str, field: str, values: Sequence[object]) -> str:
    """Name the ranks whose line does not say a field; return nothing if all do."""
    silent = sorted(run.start.rank for run, value in zip(runs, values, strict=True) if value is None)
    if not silent:
        return ""
    if len(silent) == len(runs):
        return f"no {kind} line says {field}="
    return f"the {kind} line of rank {_few(silent)} does not say {field}="


EXAMPLES = {"host": "node1", "backend": "gloo", "steps": "220", "params": "1b66e5a4c16e"}


def _print(kind: str, field: str) -> str:
    return f"have every rank print it, as in: rank 0/2 {kind} {field}={EXAMPLES[field]}"


def _few(ranks: Sequence[int]) -> str:
    return ", ".join([*map(str, ranks[:8]), *(["..."] if ranks[8:] else [])])


def _hosts(runs: Iterable[RankRun]) -> list[str]:
    ordered = sorted((run.start for run in runs), key=lambda start: start.rank)
    return list(dict.fromkeys(start.host for start in ordered if start.host is not None))


def _list(hosts: Sequence[str]) -> str:
    try:
        return compress_hostlist(hosts)
    except SlurmParseError:
        return ",".join(hosts)


def _places(runs: Sequence[RankRun]) -> str:
    ordered = sorted((run.start for run in runs), key=lambda start: (start.rank, start.host or ""))
    return ", ".join([*map(_place, ordered[:4]), *([f"and {len(runs) - 4} more"] if runs[4:] else [])])


def _place(start: RankStart) -> str:
    process = "" if start.pid is None else f" is pid {start.pid}"
    return f"rank {start.rank}{process}{'' if start.host is None else f' on {start.host}'}"


def _logs(artefacts: Artefacts) -> str:
    logs = artefacts.logs
    return logs[0].name if len(logs) == 1 else f"{logs[0].name} and {len(logs) - 1} more"


def _short(digest: str) -> str:
    return f"{digest[:12]}..." if len(digest) > 12 else digest
