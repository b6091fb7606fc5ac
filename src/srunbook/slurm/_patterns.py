"""Names of output files: what sbatch makes of `--output=%x-%j.out`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

DEFAULT_OUTPUT = "slurm-%j.out"
DEFAULT_OUTPUT_OF_ARRAY = "slurm-%A_%a.out"

FIELD = re.compile(r"%(?:(%)|([0-9]{0,2})([A-Za-z]))")


def expand_pattern(pattern: str, values: Mapping[str, str]) -> str:
    r"""Return the name of a file that a pattern of `--output` stands for.

    Args:
        pattern: The pattern. After a backslash, nothing in it is replaced.
        values: What replaces a letter, such as the number of the job for `j`. Of other letters nothing is known, and
            they stay.

    >>> expand_pattern("logs/%5j_%x.out", {"j": "17", "x": "train"})
    'logs/00017_train.out'
    >>> expand_pattern("100%%-%N.out", {"j": "17"}), expand_pattern(r"\%j", {"j": "17"})
    ('100%-%N.out', '%j')
    """
    if "\\" in pattern:
        return pattern.replace("\\", "")

    def value(match: re.Match[str]) -> str:
        if match[1]:
            return "%"
        known = values.get(match[3])
        if known is None:
            return match[0]
        return known.zfill(min(int(match[2]), 10)) if match[2] and known.isdigit() else known

    return FIELD.sub(value, pattern)


def output_pattern(words: Sequence[str], option: str = "output") -> str | None:
    """Return the pattern of `--output` among options of sbatch; the last one counts, and None is none.

    Args:
        words: The options.
        option: The option, `output` or `error`; its first letter is its short form.

    >>> output_pattern(["--parsable", "-o", "a.out", "--output=%j.out"])
    '%j.out'
    >>> output_pattern(["-o", "a.out", "-e%j.err"], "error")
    '%j.err'
    """
    found = None
    for word, following in pairwise([*words, ""]):
        if word in (f"-{option[0]}", f"--{option}"):
            found = following
        elif word.startswith(f"--{option}="):
            found = word.removeprefix(f"--{option}=")
        elif word.startswith(f"-{option[0]}"):
            found = word[2:]
    return found or None


def directives(lines: Iterable[str]) -> Iterator[str]:
    """Yield the words of the `#SBATCH` lines at the head of a script, as sbatch reads them.

    >>> list(directives(["#!/bin/bash", "#SBATCH -N 2 --output=a.out # here", "", "date", "#SBATCH -N 3"]))
    ['-N', '2', '--output=a.out']
    """
    for line in lines:
        if line.strip() and not line.startswith("#"):
            return
        if line.startswith("#SBATCH"):
            try:
                yield from shlex.split(line.removeprefix("#SBATCH"), comments=True)
            except ValueError:  # a quote without its end
                continue
