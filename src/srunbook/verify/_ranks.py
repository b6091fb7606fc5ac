"""Check what the ranks say about themselves in their rank lines."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Sequence

from srunbook.verify._artefacts import Artefacts
from srunbook.verify._causes import Cause
from srunbook.verify._launches import Launch, RankRun
from srunbook.verify._logs import Log
from srunbook.verify._matching import World
from srunbook.verify._report import Check, failed, not_proven, passed
from srunbook.verify._words import count, few, print_it, short, silent
from srunbook.verify._world import NO_LINES

DIVERGED = "training diverged: see its losses in {log}, lower the learning rate, and check the data"
EMPTY = hashlib.sha256(b"").hexdigest()


def check_rank_lines(artefacts: Artefacts, world: World) -> Check:
    """Check that the logs hold rank lines, readable ones, and of this job."""
    job, logs = artefacts.job, artefacts.logs
    if not logs:
        looked = f"found no log: there is no {', no '.join(artefacts.searched) or 'file to look for'}"
        if artefacts.results is not None:
            return failed(
                "rank lines", Cause.RANK_MISSING, looked, "did srun write its output elsewhere? See the script"
            )
        where = f"sacct -j {job} --format=WorkDir%100 says where it was submitted: run srunbook verify there"
        return not_proven("rank lines", looked, where)
    damaged = [(log, complaint) for log in logs for complaint in log.damaged]
    if damaged:
        log, complaint = damaged[0]
        return failed(
            "rank lines",
            Cause.RANK_LINE_DAMAGED,
            f"{log.name}: {complaint}",
            "did two ranks write into one line? Write each line with one call, as sys.stdout.write(line) does",
        )
    if not world.runs:
        names = ", ".join(log.name for log in logs)
        return not_proven(
            "rank lines",
            f"found no start line in {names}",
            "have every rank print one at its start and one at its end, as in: rank 0/2 start host=node1",
        )
    foreign = next((run for run in world.runs if artefacts.is_foreign(run.start.job)), None)
    if foreign:
        return failed(
            "rank lines",
            Cause.RANK_LINE_DAMAGED,
            f"{foreign.log} is of job {foreign.start.job}; expected job {job}",
            f"give the number of that job: srunbook verify {foreign.start.job}",
        )
    if artefacts.unresolved and any(run.start.job for run in world.runs):
        said = next(run.start.job for run in world.runs if run.start.job)
        return not_proven("rank lines", f"{logs[0].name} is of job {said}; only sacct knows whether that is {job}")
    more = "" if len(logs) == 1 else f" and {len(logs) - 1} more"
    return passed("rank lines", f"{count(len(world.runs), 'rank')} in {logs[0].name}{more}")


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
    if unsaid := silent(runs, "start", "backend", [run.start.backend for run in runs]):
        return not_proven("backend", unsaid, print_it("start", "backend"))
    kinds = sorted({", ".join(filter(None, [start.framework, start.device])) for start in said} - {""})
    what = f" ({'; '.join(kinds)})" if kinds else ""
    return passed("backend", f"{expected} on all ranks{what}")


def check_ends(world: World, log: Log | None = None) -> Check:
    """Check that every rank came to its end, made steps, as many as the others, and has a finite loss.

    Args:
        world: The ranks.
        log: The log of rank 0, whose lines of epochs name losses, too.
    """
    runs = world.runs
    if not runs:
        return not_proven("ends", NO_LINES)
    open_ended = sorted(run.start.rank for run in runs if run.end is None)
    if open_ended:
        run = next(run for run in runs if run.end is None and run.start.rank == open_ended[0])
        return failed(
            "ends",
            Cause.UNFINISHED,
            f"rank {few(open_ended)} started and has no end line",
            f"its last lines say how far it came: tail {run.log}",
        )
    wrong = _idle(runs) or _not_finite(runs) or _diverged(log) or _asked(world.launches)
    if wrong:
        return wrong
    if unsaid := silent(runs, "end", "steps", [_steps(run) for run in runs]):
        return not_proven("ends", f"all ranks ended, but {unsaid}", print_it("end", "steps"))
    made = [sorted({_steps(run) or 0 for run in launch.runs.values()}) for launch in world.launches]
    uneven = next((steps for steps in made if len(steps) > 1), None)
    if uneven:
        evidence = f"all ranks ended, but made {uneven[0]} to {uneven[-1]} steps"
        return not_proven("ends", evidence, "ranks that train one model make equally many, unless they use Join")
    return passed("ends", "; ".join(f"{steps[0]} steps on each rank" for steps in made))


def _steps(run: RankRun) -> int | None:
    return run.end.steps if run.end else None


def _idle(runs: Sequence[RankRun]) -> Check | None:
    idle = sorted(run.start.rank for run in runs if _steps(run) == 0)
    if not idle:
        return None
    others = sorted({steps for run in runs if (steps := _steps(run))})
    evidence = f"rank {few(idle)} ended with 0 steps; the others made {few(others)}"
    return failed(
        "ends",
        Cause.RAN_NOTHING,
        evidence if others else "all ranks ended with 0 steps",
        f"see what it printed: cat {runs[0].log}; after a resume there may have been nothing left to do",
    )


def _not_finite(runs: Sequence[RankRun]) -> Check | None:
    for run in runs:
        loss = run.end.loss if run.end else None
        if loss is not None and not math.isfinite(loss):
            advice = DIVERGED.format(log=run.log)
            return failed("ends", Cause.NOT_FINITE, f"rank {run.start.rank} ended with loss {loss}", advice)
    return None


def _diverged(log: Log | None) -> Check | None:
    for epoch, text in log.epochs.items() if log else ():
        loss = re.search(r"(\w*loss) (-?(?:nan|inf))\b", text)
        if log and loss:
            evidence = f"rank 0 printed {loss[1]} {loss[2]} for epoch {epoch}"
            return failed("ends", Cause.NOT_FINITE, evidence, DIVERGED.format(log=log.name))
    return None


def _asked(launches: Sequence[Launch]) -> Check | None:
    for launch in launches:
        asked: dict[int, int] = {}
        for rank, run in sorted(launch.runs.items()):
            if run.start.epochs is not None:
                asked.setdefault(run.start.epochs, rank)
        if len(asked) > 1:
            (epochs, rank), (others, other) = list(asked.items())[:2]
            evidence = f"rank {rank} was asked for {epochs} epochs and rank {other} for {others}"
            return failed("ends", Cause.EPOCH_ORDER, evidence, "give all ranks the same options; see the script")
    return None


def check_parameters(world: World) -> Check:
    """Check that all ranks of a world ended with the same parameters."""
    ended = [run for run in world.runs if run.end]
    if not ended:
        return not_proven("parameters", "found no end line")
    found = []
    for launch in world.launches:
        digests = {rank: run.end.params for rank, run in sorted(launch.runs.items()) if run.end and run.end.params}
        shortest = min(map(len, digests.values()), default=0)
        digests = {rank: digest[:shortest] for rank, digest in digests.items()}
        usual = Counter(digests.values()).most_common(1)[0][0] if digests else ""
        odd = [f"rank {rank} has {short(digest)}" for rank, digest in digests.items() if digest != usual]
        rest = [rank for rank, digest in digests.items() if digest == usual]
        if odd:
            whose = f"rank {rest[0]} has" if len(rest) == 1 else f"the other {len(rest)} have"
            return failed(
                "parameters",
                Cause.PARAMETERS,
                f"{', '.join(odd[:8])}; {whose} {short(usual)}",
                "the ranks did not train one model: wrap it in DistributedDataParallel, change nothing on one rank "
                "alone",
            )
        found.append(f"{short(usual)} on {f'all {len(rest)}' if len(rest) > 1 else 'the one rank'}")
    if unsaid := silent(ended, "end", "params", [run.end.params for run in ended if run.end]):
        return not_proven("parameters", unsaid, print_it("end", "params"))
    if any(EMPTY.startswith(run.end.params) for run in ended if run.end and run.end.params):
        advice = "hash the parameters of the model that was trained"
        return not_proven("parameters", f"{short(EMPTY)} is the SHA-256 of no bytes: nothing was hashed", advice)
    return passed("parameters", "; ".join(found))
