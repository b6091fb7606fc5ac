"""Tamper with files as such: those on which the proof rests are gone, or are something else, or of another job."""

from __future__ import annotations

import os
import random
import re

from support.finished_jobs import Job, Special
from support.tampering._kinds import kind, need

ELSEWHERE = "../elsewhere"
"""A folder outside of the one where the job was submitted."""


def evidence(job: Job, chance: random.Random) -> str:
    """Return the path of a file on which the proof rests: a log, or a file that the folder has to hold."""
    logs = list(job.logs.values()) if job.shape != "silent" else []
    paths = [*logs, *(f"{job.results}/{name}" for name in job.required)]
    path = chance.choice([path for path in paths if path in job.files] or [""])
    job.content(path)
    return path


# Files


@kind("files", "A file on which the proof rests is not there.")
def file_removed(job: Job, chance: random.Random) -> None:
    del job.files[evidence(job, chance)]


@kind("files", "A file on which the proof rests is empty.")
def file_empty(job: Job, chance: random.Random) -> None:
    job.files[evidence(job, chance)] = b""


@kind("files", "A file on which the proof rests has another name, so it is not the one that the job was to write.")
def file_of_another_name(job: Job, chance: random.Random) -> None:
    path = evidence(job, chance)
    folder, slash, name = path.rpartition("/")
    other = chance.choice([name.upper(), f"{name}.bak", f"{name} ", name.replace(".", ""), f"{name}~"])
    need(f"{folder}{slash}{other}" not in job.files)
    job.files[f"{folder}{slash}{other}"] = job.files.pop(path)


@kind("files", "A folder holds no proof.")
def folder_in_place_of_a_file(job: Job, chance: random.Random) -> None:
    job.files[evidence(job, chance)] = Special("folder")


@kind("files", "A named pipe holds nothing, and whoever reads it waits for a writer without end.")
def fifo_in_place_of_a_file(job: Job, chance: random.Random) -> None:
    job.files[evidence(job, chance)] = Special("fifo")


@kind("files", "What the link leads to is not there.")
def link_to_nothing(job: Job, chance: random.Random) -> None:
    path = evidence(job, chance)
    job.files[path] = Special("link", chance.choice(["nowhere", "/dev/null", "."]))


@kind("files", "The file is a link to that of another job.")
def link_to_another_job(job: Job, chance: random.Random) -> None:
    need("job" in job.said)
    path = evidence(job, chance)
    need(path in job.logs.values())
    other = re.sub(rb"\bjob=\d+", b"job=%d" % (int(job.number) + 1), job.content(path))
    job.files[f"{ELSEWHERE}/other.log"] = other
    job.files[path] = Special("link", f"{'../' * path.count('/')}{ELSEWHERE}/other.log")


@kind("files", "Nobody can read the file.")
def file_unreadable(job: Job, chance: random.Random) -> None:
    path = evidence(job, chance)
    need(not path.endswith((".pth", ".json", "timings.csv")))  # of these only the size counts
    loop = Special("link", path.rpartition("/")[2])  # root may read any file, but goes round in circles like all
    job.files[path] = loop if os.geteuid() == 0 else Special("unreadable")


@kind("files", "Random bytes hold no proof.")
def file_of_random_bytes(job: Job, chance: random.Random) -> None:
    path = evidence(job, chance)
    need(path.endswith((".log", ".out", "metrics.csv")))
    job.files[path] = chance.randbytes(chance.choice([1, 100, 5000]))


@kind("files", "The job has two folders of results, and nobody knows which of them is the right one.")
def two_folders(job: Job, chance: random.Random) -> None:
    need(job.results and job.target == job.number and not job.shape.startswith(("array", "het")))
    job.files[f"results/other_{job.number}/metrics.csv"] = b"epoch,loss\n1,0.5\n"


@kind(
    "files",
    "The folder is named after a job that completed, and what ranks print in it is of another one.",
    shape="plain",
)
def folder_of_another_job(job: Job, chance: random.Random) -> None:
    need(job.results and job.target != job.number and "job" in job.said and None not in job.logs)
    other, old = str(int(job.number) + 1), str(job.results)
    new = old.replace(job.number, other)
    job.results, job.target, job.asked = new, job.target.replace(old, new), other
    job.files = {path.replace(old, new): content for path, content in job.files.items()}
    job.logs = {rank: path.replace(old, new) for rank, path in job.logs.items()}
    job.answers[other] = job.answers.pop(job.number)
    for entry in job.rows:
        entry.renumber(other)


@kind("files", "The only log is the one that Slurm gives to a task of an array, and its number alone is the same.")
def log_of_a_namesake(job: Job, chance: random.Random) -> None:
    need(job.target == job.number and "job" not in job.said and not job.shape.startswith("array"))
    path = job.logs.get(None, "")
    need("slurm-" in path)
    job.files[path.replace("slurm-", f"slurm-{int(job.number) + 5}_")] = job.files.pop(path)


@kind("files", "The folder of the job is a link to that of another job.", shape="plain")
def folder_is_a_link(job: Job, chance: random.Random) -> None:
    need(job.results and "job" not in job.said and None not in job.logs and job.source == "sacct")
    old = str(job.results)
    new = old.replace(job.number, str(int(job.number) + 5))
    inside = {path: content for path, content in job.files.items() if path.startswith(f"{old}/")}
    job.files = {path: content for path, content in job.files.items() if path not in inside}
    job.files |= {path.replace(old, new): content for path, content in inside.items()}
    job.files[old] = Special("link", new.rpartition("/")[2])
