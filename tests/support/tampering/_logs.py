"""Tamper with what ranks print: with logs as a whole, and with who the ranks say they are."""

from __future__ import annotations

import hashlib
import random
import re

from support.finished_jobs import VALUE, Job
from support.tampering._kinds import kind, need
from support.tampering._ranks import another, any_rank, apart, both_lines, once, rank_lines, set_field, shortest_hash

# Logs


@kind("logs", "The log breaks off before an end line says that its rank ended.")
def log_cut(job: Job, chance: random.Random) -> None:
    need(job.runs == 1)
    path, number = job.find(any_rank(job, chance), "start")
    ends = [match.end() for match in re.finditer(rb"rank \d+/\d+ end\b", job.content(path))]
    begun = len(b"\n".join(job.lines(path)[: number + 1])) if job.attempts > 1 else 0  # else an earlier end is there
    need(ends and begun < ends[-1])
    job.files[path] = job.content(path)[: chance.randint(begun, ends[-1] - 1)]


@kind("logs", "Two processes ended as the same rank in one attempt.")
def log_twice(job: Job, chance: random.Random) -> None:
    need(once(job))
    path = job.log_of(any_rank(job, chance))
    job.files[path] = job.content(path) * 2


@kind("logs", "Each of two logs is that of another rank than its name says.")
def logs_swapped(job: Job, chance: random.Random) -> None:
    one = any_rank(job, chance, others=True)
    need(apart(job))
    two = another(job, chance, one)
    job.files[job.logs[one]], job.files[job.logs[two]] = job.files[job.logs[two]], job.files[job.logs[one]]


@kind("logs", "One rank's log is a copy of another's, so one of the two never spoke.")
def log_copied(job: Job, chance: random.Random) -> None:
    rank = any_rank(job, chance, others=True)
    need(apart(job))
    job.files[job.logs[rank]] = job.content(job.logs[another(job, chance, rank)])


@kind("logs", "Two ranks are one process on one host, so one log is a copy of the other with its rank changed.")
def log_copied_and_renumbered(job: Job, chance: random.Random) -> None:
    rank = any_rank(job, chance, others=True)
    need(apart(job) and {"host", "pid"} <= job.said)
    source = another(job, chance, rank)
    job.files[job.logs[rank]] = re.sub(rb"\brank %d/" % source, b"rank %d/" % rank, job.content(job.logs[source]))


@kind("logs", "The log says that it is of another job.")
def log_of_another_job(job: Job, chance: random.Random) -> None:
    path = job.log_of(any_rank(job, chance))
    other = b"job=%d" % (int(job.number) + chance.choice([-1, 1, 10]))
    job.files[path] = re.sub(rb"\bjob=\d+", other, job.content(path))


@kind("logs", "A rank's log is of another run, as its hash shows.")
def log_of_another_run(job: Job, chance: random.Random) -> None:
    rank = any_rank(job, chance, others=True)
    need(apart(job))
    other = hashlib.sha256(chance.randbytes(8)).hexdigest().encode()[: shortest_hash(job)]
    path = job.logs[rank]
    job.files[path] = re.sub(rb"\bparams=[0-9a-f]+", b"params=" + other, job.content(path))


@kind("logs", "There is a log of a rank that the world does not have, so Slurm started more tasks than took part.")
def log_of_a_rank_too_many(job: Job, chance: random.Random) -> None:
    need(apart(job))
    words = [b"", b"Traceback (most recent call last):\n", b"rank %d/%d start\n" % (job.size, job.size + 1)]
    job.files[f"{job.results}/rank_{job.size + chance.randint(0, 2)}.log"] = chance.choice(words)


@kind("logs", "Two logs are of the same rank.")
def log_under_two_names(job: Job, chance: random.Random) -> None:
    need(apart(job) and once(job))
    rank = any_rank(job, chance)
    job.files[f"{job.results}/rank_0{rank}.log"] = job.content(job.logs[rank])


@kind("logs", "The log holds nothing but zeros, as after a crash of the file system.")
def log_of_zeros(job: Job, chance: random.Random) -> None:
    path = job.log_of(any_rank(job, chance))
    job.files[path] = b"\0" * len(job.content(path))


# Ranks


@kind("ranks", "A rank said nothing.")
def rank_removed(job: Job, chance: random.Random) -> None:
    rank = any_rank(job, chance)
    for number in reversed(rank_lines(job, rank)):
        job.change(job.log_of(rank), number)


@kind("ranks", "A world of so many has no such rank.")
def rank_out_of_the_world(job: Job, chance: random.Random) -> None:
    rank, event = any_rank(job, chance), chance.choice(["start", "end"])
    job.edit(rank, event, rb"rank \d+/", b"rank %d/" % chance.choice([job.size, job.size + 1, 10**15]))


@kind("ranks", "One rank is there twice, and another is not.")
def rank_of_another_number(job: Job, chance: random.Random) -> None:
    rank = any_rank(job, chance, others=True)
    path, instead = job.log_of(rank), b"rank %d/" % another(job, chance, rank)
    for number in rank_lines(job, rank):
        job.change(path, number, re.sub(rb"\brank \d+/", instead, job.lines(path)[number]))


@kind("ranks", "Two processes, on two hosts, ended as the same rank in one attempt.")
def rank_twice(job: Job, chance: random.Random) -> None:
    need(once(job))
    path, begun, ended = both_lines(job, any_rank(job, chance))
    start, end = job.lines(path)[begun], job.lines(path)[ended]
    other = re.sub(rb"\bpid=\d+", b"pid=7", re.sub(rb"\bhost=" + VALUE, b"host=elsewhere", start))
    job.change(path, ended, *chance.choice([[other, end, end], [end, other, end]]))


@kind("ranks", "Two processes of one rank both ended after both had begun, so they were of one attempt.")
def rank_twice_at_once(job: Job, chance: random.Random) -> None:
    need(job.attempts > 1 and len(job.possible_steps) < 2)  # else they may be of two steps at once
    rank = any_rank(job, chance)
    path, begun, ended = both_lines(job, rank)
    start, end = job.lines(path)[begun], job.lines(path)[ended]
    earlier = [number for number in rank_lines(job, rank) if number < begun]
    job.change(path, ended, end, end)
    job.change(path, begun, start, re.sub(rb"\bpid=\d+", b"pid=7", start))
    for number in reversed(earlier):
        job.change(path, number)


@kind("ranks", "A rank ended more often than it began, and so many lines must not take long to read.")
def thousands_of_ends(job: Job, chance: random.Random) -> None:
    path, begun, ended = both_lines(job, any_rank(job, chance))
    start, end, times = job.lines(path)[begun], job.lines(path)[ended], chance.choice([3, 3, 300, 6000])
    job.change(path, ended, *[start, end] * times, *[end] * times)


@kind("ranks", "Each rank found itself alone in a world of 1.")
def each_rank_alone(job: Job, chance: random.Random) -> None:
    any_rank(job, chance, others=True)
    for path in set(job.logs.values()):
        kinds: dict[bytes, list[bytes]] = {b"start": [], b"end": [], b"": []}
        for line in job.lines(path):
            mark = re.search(rb"(?<![A-Za-z_])rank \d+/\d+ (start|end)\b", line)
            alone = line.replace(mark[0], b"rank 0/1 " + mark[1]) if mark else line
            kinds[mark[1] if mark else b""].append(alone)
        job.files[path] = b"\n".join([*kinds[b"start"], *kinds[b"end"], *kinds[b""]])  # they ran at once


@kind("ranks", "A rank began or ended in another world than the others, or than it began in.")
def world_of_another_size(job: Job, chance: random.Random) -> None:
    rank = any_rank(job, chance)
    size = chance.choice([job.size + 1, job.size * 2, *range(rank + 1, job.size)])
    for event in chance.choice([["start"], ["end"], ["start", "end"]]):
        job.edit(rank, event, rb"/\d+ (?=start|end\b)", b"/%d " % size)


@kind("ranks", "All ranks say that there are more of them, and the others are missing.")
def larger_world(job: Job, chance: random.Random) -> None:
    any_rank(job, chance)
    size = b"%d" % (job.size * chance.randint(2, 3))
    for path in set(job.logs.values()):
        job.files[path] = re.sub(rb"(rank \d+/)\d+( start| end)\b", rb"\g<1>%s\g<2>" % size, job.content(path))


@kind("ranks", "Two ranks have one host and one process number, so they are one process.")
def two_ranks_of_one_process(job: Job, chance: random.Random) -> None:
    rank = any_rank(job, chance, others=True)
    other = another(job, chance, rank)
    host, pid = (job.value(other, "start", name) for name in ("host", "pid"))
    job.edit(rank, "start", rb"\bhost=" + VALUE, b"host=" + host)
    set_field(job, rank, "start", "pid", pid)


@kind("ranks", "A rank ran on a host that is not one of the job's.")
def host_not_given(job: Job, chance: random.Random) -> None:
    rank = any_rank(job, chance)
    named = job.hosts[rank].split(".")[0] in job.nodes  # else a new name on each node is only another spelling
    need(len(job.nodes) > 1 and (named or job.hosts.count(job.hosts[rank]) > 1))
    set_field(job, rank, "start", "host", b"stranger")


@kind("ranks", "All ranks of a node say that they ran on another: the job was given a node that did nothing.")
def host_without_rank(job: Job, chance: random.Random) -> None:
    need(len(job.nodes) > 1)
    idle, busy = chance.sample(sorted(set(job.hosts)), 2)
    for rank, host in enumerate(job.hosts):
        if host == idle:
            set_field(job, rank, "start", "host", busy.encode())


@kind("ranks", "Two tasks of a node say that they have one place there: local_rank= counts the tasks of a node.")
def place_taken(job: Job, chance: random.Random) -> None:
    rank = any_rank(job, chance, others=True)
    others = [other for other in range(job.size) if other != rank and job.hosts[other] == job.hosts[rank]]
    need(others and job.main["NTasks"] == str(job.size) and not job.shape.startswith("het"))
    set_field(job, rank, "start", "local_rank", job.value(chance.choice(others), "start", "local_rank"))


@kind("ranks", "Ranks of two backends cannot have exchanged anything.")
def another_backend(job: Job, chance: random.Random) -> None:
    set_field(job, any_rank(job, chance, others=True), "start", "backend", chance.choice([b"nccl", b"none", b"mpi"]))


@kind("ranks", "The ranks used another backend than the one that was asked for.")
def another_backend_than_asked(job: Job, chance: random.Random) -> None:
    need("--backend" in job.options)
    any_rank(job, chance)
    for rank in range(job.size):
        set_field(job, rank, "start", "backend", b"nccl")


@kind("ranks", "The rank began again after it had ended, and did not end again.")
def begun_again(job: Job, chance: random.Random) -> None:
    path, begun, ended = both_lines(job, any_rank(job, chance))
    job.change(path, ended, job.lines(path)[ended], job.lines(path)[begun])


@kind("ranks", "All that this rank says is of the attempt before: the others began and ended once more.")
def rank_of_the_attempt_before(job: Job, chance: random.Random) -> None:
    rank = any_rank(job, chance, others=True)
    numbers, (path, last) = rank_lines(job, rank), job.find(rank, "start")
    need(job.attempts > 1 and any(b" end" in job.lines(path)[number] for number in numbers if number < last))
    for number in reversed([number for number in numbers if number >= last]):
        job.change(path, number)
