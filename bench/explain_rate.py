"""How often `srunbook explain` names the right cause, in jobs whose cause is known and in lines from public issues.

python bench/explain_rate.py                 # writes bench/results/explain_rate.json
python bench/explain_rate.py --development   # shows the misses of the half that patterns are developed on
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from helpers.corpus import DEVELOPMENT, FORMS, HALVES, Job, Judged, half_of, judge, path_of, read_jobs, scanner
from helpers.program import write
from measurements import Configuration

from srunbook.explain import diagnose

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "bench" / "results" / "explain_rate.json"
sys.path.insert(0, str(ROOT / "tests"))

from support.site_search import Pasted, public_messages  # noqa: E402

KINDS = {
    "failed": "failed, and an entry describes it",
    "unknown": "failed, and no entry describes it",
    "quiet": "wrong without a failure in the log",
    "healthy": "healthy",
}
WAYS = {
    "shell": "refused by sbatch, or typed in a shell",
    "slurm": "run by Slurm",
    "simulation": "run in the simulation",
    "process": "run as one process",
}


def judged(message: Pasted) -> Judged:
    """Compare what `explain` makes of one line with its label; an entry of a warning counts where it is named."""
    found = diagnose([scanner().scan("pasted", [message.line.encode()])])
    named = [finding.slug for finding in (found.cause, *found.warnings) if finding and finding.slug]
    if not named:
        return Judged("open" if message.entry else "right", "")
    return Judged("right" if named[0] == message.entry else "wrong", named[0])


def row(of: str, name: str, outcomes: Iterable[str], what: str = "jobs", **parameters: str) -> Configuration:
    """Count the outcomes of some jobs, or of what else there are."""
    counts = Counter(outcomes)
    total = counts.total()
    figures = {what: total, "right": counts["right"], "open": counts["open"], "wrong": counts["wrong"]}
    samples = {key: [float(value)] for key, value in figures.items()}
    print(f"{of}: {name}: {figures}", flush=True)
    samples["right_percent"] = [round(100 * counts["right"] / total, 1)]
    return Configuration(f"{of}: {name}", {"of": of, **parameters}, samples)


def is_own(job: Job) -> bool:
    """Tell whether a job ran a program of an entry, from whose recording the entry's message comes."""
    return job.program.startswith("examples/failures/")


def by_kind(half: str, jobs: list[Job], outcomes: dict[str, Judged]) -> Iterator[Configuration]:
    """Yield a row for each kind of jobs, and of failed ones for each way in which they were started and broken."""
    for kind, title in KINDS.items():
        chosen = [job for job in jobs if job.kind == kind]
        if chosen:
            outcome = (outcomes[job.name].outcome for job in chosen)
            yield row("kinds", f"{half}, {title}", outcome, half=half, kind=title)
    for way, title in WAYS.items():
        for source, own in {"an entry's own": True, "a guide's, with a fault": False}.items():
            chosen = [job for job in jobs if job.kind == "failed" and job.where == way and is_own(job) == own]
            if chosen:
                outcome = (outcomes[job.name].outcome for job in chosen)
                yield row("ways", f"{half}, {title}, {source}", outcome, half=half, way=title, program=source)


def misses(half: str, jobs: Iterable[Job], outcomes: dict[str, Judged]) -> Iterator[Configuration]:
    """Yield a row for each program and fault whose cause was not named, or for which a wrong one was."""
    found = Counter(
        (job.program, job.fault, ", ".join(job.causes), outcomes[job.name].named[:60])
        for job in jobs
        if outcomes[job.name].outcome != "right"
    )
    for (program, fault, right, named), count in sorted(found.items()):
        parameters = {"of": "misses", "half": half, "program": program, "fault": fault or "none"}
        parameters |= {"right": right or "no entry", "named": named or "nothing"}
        yield Configuration(f"{half}: {program}, {fault}, {named}", parameters, {"jobs": [float(count)]})


def by_form(half: str, jobs: list[Job]) -> Iterator[Configuration]:
    """Yield a row for each form of a log, of all failed jobs that an entry describes."""
    chosen = [job for job in jobs if job.kind == "failed" and job.log]
    for form in FORMS:
        yield row("forms", f"{half}, {form}", (judge(job, form).outcome for job in chosen), half=half, form=form)


def of_public_messages() -> Iterator[Configuration]:
    """Yield the rows of the lines from public issues, and of those that were missed."""
    known = [message for message in public_messages() if message.entry]
    for title, chosen in {
        "an entry describes it": known,
        "no entry describes it": [message for message in public_messages() if not message.entry],
    }.items():
        outcomes = {message: judged(message) for message in chosen}
        yield row("public", title, (one.outcome for one in outcomes.values()), what="lines", kind=title)
        for message, one in outcomes.items():
            if one.outcome != "right":
                told = {"of": "public misses", "line": message.line[:100], "right": message.entry or "no entry"}
                yield Configuration(message.line[:100], {**told, "named": one.named or "nothing"}, {"lines": [1.0]})


def main() -> None:
    """Diagnose all jobs and lines, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--development", action="store_true", help="only show how the development half fares")
    parser.add_argument("--jobs", type=Path, help="a file of jobs in the place of those that are committed")
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    rows: list[Configuration] = []
    for half in [DEVELOPMENT] if options.development else HALVES:
        jobs = [job for job in read_jobs(options.jobs or path_of(half)) if half_of(job.program) == half]
        outcomes = {job.name: judge(job, job.form) for job in jobs}
        missed = [*misses(half, jobs, outcomes)]
        rows += [*by_kind(half, jobs, outcomes), *missed, *by_form(half, jobs)]
        if options.development:
            for one in missed:
                print(one.parameters, one.samples)
    rows += of_public_messages()
    if not options.development:
        write(options.output, rows)


if __name__ == "__main__":
    main()
