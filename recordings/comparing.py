"""Compare what a file printed once with what it prints now, and two trainings with each other."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Mask:
    """Something that may vary between two runs of the same file.

    Args:
        pattern: Regular expression of what varies.
        replacement: What stands for it in a comparison.
        reason: Why it may vary.
    """

    pattern: str
    replacement: str
    reason: str


MASKS = (
    Mask(r"\b(JobId|JOBID)=\d+", r"\1=<id>", "Slurm numbers jobs as they come"),
    Mask(r"\bjob=\d+", "job=<id>", "Slurm numbers jobs as they come"),
    Mask(r"\bpid=\d+", "pid=<pid>", "the kernel numbers processes as they come"),
    Mask(r"\bhost=\S+", "host=<name>", "each machine has its own name, and any may get rank 0"),
    Mask(r"\bparams=\w+", "params=<hash>", "processors round in different ways, and networks in the order of arrival"),
    Mask(r"\bloss=[\d.]+", "loss=<n>", "processors round in different ways, and training amplifies it"),
)
"""What may vary in any run: first of all in the lines of ranks."""

ROUNDING = (
    Mask(r"([Ll]oss:?|mae|rmse|accuracy|Accuracy:) [\d.]+%?", r"\1 <n>", "processors round in different ways"),
    Mask(r"[\d.]+ (samples/s|tokens/s|times as long)", r"<n> \1", "machines are not equally fast"),
)
"""What may vary in the figures of a training: rounding, which training amplifies, and speed."""

JOB_MASKS = (
    Mask(r"\b[Jj]ob \d+", "job <id>", "Slurm numbers jobs as they come"),
    Mask(r"\b\d+\b( \S+ PENDING)", r"<id>\1", "Slurm numbers jobs as they come"),
    Mask(r"(results)/\d+", r"\1/<id>", "Slurm numbers jobs as they come"),
    Mask(r"-\d+(_\d+)?\.(out|err)\b", r"-<id>\1.\2", "the job's number is part of the name"),
    Mask(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", "<time>", "the job ran at another time"),
    Mask(r"(RunTime|PreemptEligibleTime|LastSchedEval|Scheduler)=\S+", r"\1=<time>", "when Slurm looked at the job"),
    Mask(r"TimeLimit=\S+", "TimeLimit=<limit>", "a job under test gets more time than its script asks for"),
    Mask(r" --time=60\b", "", "a job under test gets more time than its script asks for"),
    Mask(r"Priority=\d+", "Priority=<number>", "every later job has a lower one"),
    Mask(r"(AllocNode:Sid=\S+):\d+", r"\1:<pid>", "the kernel numbers sessions as they come"),
    Mask(r"/home/(\w+)/[\w.-]+", r"/home/\1/<folder>", "each submission has a folder of its own"),
    Mask(r"\b(10\.77\.0\.\d+|node\d+):\d+", r"\1:<port>", "ports are derived from the job's number"),
    Mask(r"(=\[127\.0\.1\.1\]|\]):\d+", r"\1:<port>", "the system chose the port; gloo swaps its bytes: 1 to 5 digits"),
    Mask(r"\bnode(\d+\b|\[[\d,-]+\])", "<nodes>", "Slurm takes whichever nodes are idle"),
    Mask(r"\b[IWE]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ ", "<log> ", "time and thread of a log line of JAX"),
    Mask(r"\[\w\d{4} [\d:.]+ (\S+)\]", r"[<time> \1]", "time of a message of PyTorch"),
    Mask(r"\[W\d{4} [\d:.]+ ", "[W<time> ", "time of a warning of PyTorch"),
    Mask(r"^ *\d+: ", "<task>: ", "which task comes first is chance, and torchrun numbers nodes as they arrive"),
    Mask(r"\$\d\b", "$<rank>", "which rank comes first is chance"),
    Mask(r"\b\d+\.\d+ ?(s|ms)\b", r"<duration> \1", "how long something took"),
    Mask(r"direction .* a step", "direction <n>, bandwidth <n>, <t> a step", "processors round in different ways"),
    Mask(r"(rate|mutation) [\d.]+ \+- [\d.]+", r"\1 <n> +- <n>", "processors round in different ways"),
    *ROUNDING,
    Mask(r"^( +\d+)( +\d+\.\d\d){6}$", r"\1 <times>", "machines are not equally fast"),
    Mask(r"^( +\d+ +\d+) .*%$", r"\1 <figures>", "machines are not equally fast"),
    Mask(r"^bottleneck: .*", "bottleneck: <part>", "it depends on what else the machine does"),
)
"""What may vary besides in a job on the test cluster, which has two cores for all its nodes."""

DECIMAL = re.compile(r"(?<![\w.])[-+]?\d+\.\d+(?:[eE][-+]?\d+)?(?!\.?\d)")
"""A number with a fraction: not a version, an address, or a count, which have to be the same."""

TOLERANCE = 0.01
"""By how much such numbers may differ, relative to the larger: processors and libraries round in different ways."""


def decimals(line: str) -> list[float]:
    """Return the numbers with a fraction in a line.

    >>> decimals("step 40 of torch 2.13.0 at 10.77.0.3: loss -1.25, rate 1.0e-3, 3.5s")
    [-1.25, 0.001, 3.5]
    """
    return [float(text) for text in DECIMAL.findall(line)]


def shape(line: str) -> str:
    """Return a line without its numbers with a fraction."""
    return DECIMAL.sub("<number>", line)


def close(one: str, other: str) -> bool:
    """Whether two lines of the same shape agree, their numbers within the tolerance."""
    return all(math.isclose(a, b, rel_tol=TOLERANCE) for a, b in zip(decimals(one), decimals(other), strict=True))


def masked(line: str, masks: Iterable[Mask]) -> str:
    """Return a line without what may vary."""
    for mask in masks:
        line = re.sub(mask.pattern, mask.replacement, line)
    return line


def compare(recorded: Sequence[str], printed: Sequence[str], masks: Iterable[Mask] = ()) -> str | None:
    r"""Compare a recorded output with that of a new run, in any order. Numbers with a fraction may differ by 1 %.

    Args:
        recorded: Lines of the recording.
        printed: Lines of the new run.
        masks: What may vary.

    Returns:
        None where they agree, else a unified diff of the masked lines.

    >>> compare(["job 17 done"], ["job 18 done"], [Mask(r"job \d+", "job <id>", "a fresh id each time")])
    >>> print(compare(["y=[8.]"], ["y=[7.]"]))
    --- recorded
    +++ printed
    @@ -1 +1 @@
    -y=[8.]
    +y=[7.]
    >>> compare(["loss 0.2948"], ["loss 0.2949"])
    """
    masks = list(masks)
    before, after = ([masked(line, masks).rstrip() for line in lines] for lines in (recorded, printed))
    for lines in (before, after):  # ranks print in any order
        lines.sort(key=lambda line: (shape(line), decimals(line)))
    same = difflib.SequenceMatcher(None, [*map(shape, before)], [*map(shape, after)], autojunk=False)
    for at, to, length in same.get_matching_blocks():
        for i in range(length):
            if close(before[at + i], after[to + i]):
                after[to + i] = before[at + i]
    difference = list(difflib.unified_diff(before, after, "recorded", "printed", lineterm=""))
    return "\n".join(difference) if difference else None
