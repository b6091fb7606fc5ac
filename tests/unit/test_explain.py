"""What `srunbook explain` makes of logs: how they are read, which line is the cause, which entry explains it."""

from __future__ import annotations

import gzip
import random
import re
from pathlib import Path

import pytest
from failure_entries import FOLDER, ROOT, EntryError, read_entries, recordings, shows_failure
from support.drawn_secrets import secret_lines

from srunbook.explain import Redactor, Scanner, diagnose, expression, load_entries, load_ordinary, plain
from srunbook.explain.entries import most_specific_first
from srunbook.explain.scan import TRACEBACK

NCCL = "RuntimeError: Distributed package doesn't have NCCL built in"
PEER = "RuntimeError: [pair.cc:553] Connection closed by peer [10.0.0.1]:33164"
PROXY = "JAX detected proxy variable(s) in the environment as distributed setup: http_proxy."
DEADLINE = "absl::Status: DEADLINE_EXCEEDED: Deadline Exceeded"

FAILED = "srun: error: node4: task 1: Exited with exit code 1"
KILLED = "srun: error: node4: task 1: Killed"
TERMINATED = "srun: error: node3: task 0: Terminated"
CANCELLED = "slurmstepd-node3: error: *** STEP 50.0 ON node3 CANCELLED AT 2026-11-23T16:41:07 ***"
LIMIT = "slurmstepd-node3: error: *** STEP 50.0 ON node3 CANCELLED AT 2026-11-23T16:41:07 DUE TO TIME LIMIT ***"
CUT = ["1: Traceback (most recent call last):", FAILED, CANCELLED, TERMINATED]
"""The log of a job of Slurm 22.05 on two busy nodes: the end of the step cut the traceback off."""


def found(*logs, completed=False):
    """Diagnose logs, each given as its lines."""
    scanner = Scanner(load_entries())
    scanned = [scanner.scan(f"rank_{rank}.log", ["\n".join(lines).encode()]) for rank, lines in enumerate(logs)]
    return diagnose(scanned, completed=completed)


def slugs(diagnosis):
    """Return the entries whose failures the logs show."""
    return {finding.slug for finding in (diagnosis.cause, *diagnosis.consequences) if finding and finding.slug}


def at(second, line):
    """Return the lines of a log in which something happened at a time."""
    return [f"2026-11-20 10:00:{second:02}", line]


CHAINED = [
    "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes.",
    "The above exception was the direct cause of the following exception:",
    "RendezvousConnectionError: The connection to the C10d store has failed. See inner exception for details.",
    "KeyError: 'x'",
]


CAUSES = {
    "the earliest failure": (
        [at(9, NCCL), at(1, "ValueError: bad row")],
        "ValueError: bad row",
        ["torch-nccl-without-gpu"],
    ),
    "who lost a connection waited for another": (
        [at(1, PEER), at(2, "ZeroDivisionError: by zero")],
        "ZeroDivisionError: by zero",
        ["torch-peer-died"],
    ),
    "a warning that many good runs print": ([[PROXY]], None, []),
    "a message of who waited": ([[DEADLINE]], "jax-initialize-deadline", []),
    "a warning explains its consequence": ([[PROXY], [DEADLINE]], "jax-proxy-variables", []),
    "exceptions of one traceback are one failure": ([CHAINED], "torch-several-launchers", []),
    "an error with a value is a measure": ([["epoch 1  train error: 0.412  test error: 0.45"]], None, []),
    "a task that ended by itself": ([CUT], FAILED, []),
    "who was killed first": ([[KILLED, CANCELLED]], KILLED, []),
    "who was stopped with the step": ([[CANCELLED, KILLED]], None, []),
    "an error of glog": (
        [["(w pid=7, ip=a) E0000 00:00:17.2 9 x.cc:1] no answer"]],
        "E0000 00:00:17.2 9 x.cc:1] no answer",
        [],
    ),
    "an error of XLA": (
        [["warning: slow", "2026-11-20 10:00:02.1: E external/xla/x.cc:1] no answer"]],
        "E external/xla/x.cc:1] no answer",
        [],
    ),
    "what a spawned process raised": (
        [["torch.multiprocessing.spawn.ProcessRaisedException:", "KeyError: 'x'"]],
        "KeyError: 'x'",
        [],
    ),
    "an exception by another name": (
        [["warning: slow", "a.errors.MoreSplits: {'x'}"]],
        "a.errors.MoreSplits: {'x'}",
        [],
    ),
    "an error of a command of Slurm": ([["squeue: fatal: no file"]], "squeue: fatal: no file", []),
    "a traceback that breaks off": ([["1: Traceback (most recent call last):", "1:   File 'a.py'"]], TRACEBACK, []),
    "our own line about a job": ([["sacct: 17.0 FAILED 1:0", "squeue: RUNNING node1"]], None, []),
    "what healthy jobs print": ([["slurmstepd: error: Unable to create TMPDIR [/x]: Permission denied"]], None, []),
    "the time limit before what it ends": (
        [[LIMIT, "Bypassing SIGTERM: 15"]],
        "slurm-time-limit",
        ["lightning-sigterm"],
    ),
}


@pytest.mark.parametrize(("logs", "cause", "others"), CAUSES.values(), ids=CAUSES)
def test_cause(logs, cause, others):
    """The first failure is named, and what followed from it."""
    diagnosis = found(*logs)
    named = diagnosis.cause and (diagnosis.cause.slug or diagnosis.cause.text)

    assert named == cause
    assert [finding.slug for finding in diagnosis.consequences if finding.slug] == others


def test_unknown_failure_names_three_lines():
    """What no entry knows is told as such, with the loudest lines, each once, and no result of srun."""
    diagnosis = found(
        ["warning: slow disk", "error: no budget", "OSError: [Errno 5] Input/output error: 'x'"],
        ["OSError: [Errno 5] Input/output error: 'x'", "it failed", FAILED],
    )

    assert diagnosis.cause.slug == ""
    assert [finding.text for finding in diagnosis.to_search] == [
        "OSError: [Errno 5] Input/output error: 'x'",
        "error: no budget",
        "warning: slow disk",
    ]


@pytest.mark.parametrize("missing", [False, True])
def test_error_before_the_end(missing):
    """An error that the end of all ranks follows is a warning of a healthy job; where one rank didn't end, it isn't."""
    ends = ["rank 0/2 end steps=9 loss=0.1", "" if missing else "1: rank 1/2 end steps=9"]
    diagnosis = found(["ValueError: tried again", "error: slow disk", *ends])

    assert diagnosis.healthy != missing
    assert (diagnosis.cause is None) != missing
    assert diagnosis.to_search[0].text == "ValueError: tried again"


def test_completed_job_has_no_unknown_failure():
    """In a job that Slurm calls COMPLETED 0:0, a line that no entry knows is no failure; one that an entry knows is."""
    assert found(["ValueError: tried again", KILLED], completed=True).cause is None
    assert found(["Bypassing SIGTERM: 15"], completed=True).cause.slug == "lightning-sigterm"


SLUG = "torch-nccl-without-gpu"


def scan(data, name="log", size=1000):
    blocks = (data[at : at + size] for at in range(0, len(data), size))
    return Scanner(load_entries()).scan(name, blocks)


@pytest.mark.parametrize(
    ("line", "rank"),
    [
        (f"[3] [rank5]: {NCCL}", 5),
        (f"[1,4]<stderr>:{NCCL}", 4),
        (f"\x1b[31m2: \x1b[1m{NCCL}\x1b[0m", 2),
        (f"0: 2026-11-20T10:00:00.5 {NCCL}", 0),
        (f" 10%|# | 1/10\r 20%|## | 2/10\r{NCCL}", None),
        (f"\x00\xff\x01 {NCCL}", None),
    ],
)
def test_message_is_found_behind_whatever_stands_before_it(line, rank):
    """Labels, times, colours, bars and bytes that are no text hide neither a message nor its rank."""
    (finding,) = scan(f"step 1\n{line}\r\n".encode("latin-1")).findings

    assert (finding.slug, finding.rank, finding.number) == (SLUG, rank, 2)


@pytest.mark.parametrize(("cut", "end", "problem"), [(None, b"", ""), (-8, b"", "cut off"), (-8, bytes(8), "damaged")])
def test_packed_log(cut, end, problem):
    """A gzipped log is read like a plain one, also one of two parts; of one that is not whole, what it holds."""
    noise = random.Random(3).randbytes(20_000).hex()
    packed = gzip.compress(f"{NCCL}\n".encode()) + gzip.compress(noise.encode())
    scanned = scan(packed[:cut] + end)

    assert [finding.slug for finding in scanned.findings] == [SLUG]
    assert problem in "".join(scanned.problems)
    assert bool(problem) == bool(scanned.problems)


def test_no_secret_is_left():
    """No user, home, host, address, token or key remains, in any of the places where logs print them."""
    for secret, line in [pair for seed in range(20) for pair in secret_lines(random.Random(seed))]:
        redactor = Redactor()
        redactor.learn(line)
        masked = redactor.mask(line)

        assert secret not in masked, line
        assert re.search(r"<\w+>", masked), line


def test_name_learned_once_is_masked_everywhere():
    """A user and a host that one line betrays are masked in all others, each by the same mask."""
    redactor = Redactor()
    redactor.learn("/home/alice/x host=node7")

    assert redactor.mask("alice ran on node7, node71 and node7-ib") == "<user1> ran on <host1>, node71 and <host1>-ib"


def test_shipped_entries_are_those_of_the_pages():
    """What is shipped holds the entries as the pages have them."""
    assert load_entries() == read_entries(ROOT / FOLDER)


def test_entry_that_explains_nothing(tmp_path):
    """An entry that explains one that does not exist is refused."""
    lines = [
        "messages: [of great things]",
        "stage: meet",
        "symptom: hangs",
        "frameworks: [Slurm]",
        "fix: Wait.",
        "explains: [two]",
    ]
    (tmp_path / "one.md").write_text("\n".join(["---", *lines, "---", ""]))

    with pytest.raises(EntryError, match=r"one\.md: explains 'two', which is no entry"):
        read_entries(tmp_path)


def test_form_of_a_message():
    """`#` stands for a number, `*` for a name without spaces, everything else for itself."""
    assert re.search(expression("Timed out waiting #ms for recv"), "x Timed out waiting 6000ms for recv y")
    assert re.search(expression(r"\# of tasks: #/#."), "# of tasks: 1/2.")
    assert re.search(expression("NET/IB : Got 'x'"), plain('NET/IB:  Got "x"'))
    assert not re.search(expression("connect to (*, #)"), "connect to (node 1, 29500)")
    assert not re.search(expression("devices (all)"), "devices [all]")


def test_each_message_leads_to_its_entry():
    """The first form that a message has, with 7 for each number and x for each name, is one of its own entry."""
    forms = most_specific_first(load_entries())
    patterns = [(slug, re.compile(expression(form))) for slug, form in forms]
    for slug, form in forms:
        text = re.sub(r"(?<!\\)#", "7", re.sub(r"(?<!\\)\*", "x", form))
        text = plain(re.sub(r"\\([#*])", r"\1", text))
        assert next(owner for owner, pattern in patterns if pattern.search(text)) == slug, form


RUNS = {path.relative_to(ROOT).as_posix(): run for path, run in recordings(ROOT)}


@pytest.mark.parametrize("name", [name for name in RUNS if shows_failure(Path(name))])
def test_a_recorded_failure_is_that_of_its_entry(name):
    """What is named first in a recording is its entry, or an exception that no entry has; a silent one has no entry."""
    slug = Path(name).parent.name
    entry = load_entries()[slug]
    found = diagnosed(RUNS[name])
    warns = entry.role == "warning" and not entry.explains
    silent = warns or not entry.messages

    assert not found.cause or found.cause.slug in ("", slug)
    assert (slug in slugs(found)) is not silent
    assert not silent or not slugs(found)
    assert (slug in {finding.slug for finding in found.warnings}) == warns


def diagnosed(run):
    scanned = Scanner(load_entries(), load_ordinary()).scan("log", ["\n".join(run.output).encode()])
    return diagnose([scanned], completed=not run.exit_code)


def test_good_runs_match_nothing():
    """No recording of a good run has a cause, and none is of an entry but those of warnings.

    The logs of a job that was preempted, or lost a node, have the messages of that.
    """
    runs = {
        name: run
        for name, run in RUNS.items()
        if not name.endswith((".preempted.recording.json", ".died.recording.json"))
    }
    fine = [name for name, run in runs.items() if not run.exit_code or "failures" in Path(name).parts]
    mended = {name: diagnosed(RUNS[name]) for name in fine if not shows_failure(Path(name))}
    good = {name: found for name, found in mended.items() if not RUNS[name].exit_code}

    assert len(good) > 100
    assert {name: found for name, found in mended.items() if slugs(found)} == {}
    assert {name: found for name, found in good.items() if found.cause or found.to_search} == {}
