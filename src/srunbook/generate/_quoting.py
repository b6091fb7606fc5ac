"""Words that bash reads back exactly as they were given."""

from __future__ import annotations

import re
import shlex

PLAIN = re.compile(r"(?:--[A-Za-z0-9][A-Za-z0-9_-]*=)?[A-Za-z0-9_./:@%+-]+")
"""Words that mean themselves to bash, and to a reader."""

KEYWORDS = frozenset(
    {"case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if", "in", "select", "then"}
    | {"time", "until", "while"}
)
"""Words of bash itself, quoted so that nobody takes an argument for one."""


def quote(word: str) -> str:
    """Quote a word where bash needs it.

    >>> print(quote("--epochs=3"), quote("a b"), quote("it's"), quote("$HOME"), quote(""))
    --epochs=3 'a b' 'it'"'"'s' '$HOME' ""
    """
    if not word:
        return '""'
    if PLAIN.fullmatch(word) and word not in KEYWORDS:
        return word
    quoted = shlex.quote(word)
    return quoted if quoted != word else f"'{word}'"


def quote_place(place: str) -> str:
    """Quote a path; bash still expands a `~` or a variable at its beginning.

    >>> print(quote_place("~/jax-env"), quote_place("${IMAGE}"), quote_place("/a b"), quote_place("~/a $b"))
    "$HOME/jax-env" "${IMAGE}" '/a b' "$HOME"/'a $b'
    """
    match = re.fullmatch(r"(~|\$\w+|\$\{\w+\})(?:/(.*))?", place, re.ASCII)
    if not match:
        return f'"{place}"' if PLAIN.fullmatch(place) else quote(place)
    variable = "$HOME" if match[1] == "~" else match[1]
    if not match[2]:
        return f'"{variable}"'
    if PLAIN.fullmatch(match[2]):
        return f'"{variable}/{match[2]}"'
    return f'"{variable}"/{quote(match[2])}'


def conda_activation(environment: str) -> str:
    """Write the words after `source` that activate a conda environment; conda need not be set up in the shell.

    >>> print(conda_activation("~/miniforge3/envs/torch-env"))
    "$HOME/miniforge3/bin/activate" torch-env
    """
    conda, _, name = environment.rpartition("/envs/")
    return f"{quote_place(f'{conda}/bin/activate')} {quote(name)}"
