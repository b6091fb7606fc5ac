"""`srunbook adapt`: fit a job script to a cluster."""

from __future__ import annotations

import difflib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from srunbook import sites
from srunbook.cli._speaking import emit, say

if TYPE_CHECKING:
    from srunbook.adapt import Site

MOST = 4 << 20
"""Bytes of a script: Slurm takes no more unless a site says otherwise."""


@click.command(
    "adapt",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Example:
  srunbook adapt ddp.sbatch --config my_cluster.yaml | sbatch

\b
Later ones win: cluster, configuration file, --set.

\b
Exit status:
  0   the script is adapted, or was already
  1   it could not be written, for example because the disk is full
  2   bad input, such as a wrong configuration; nothing was written
  3   the script says something that is not understood, in the line that is named; nothing was written
""",
)
@click.argument("script", metavar="SCRIPT")
@click.option("--config", metavar="FILE", help="Your cluster, in the YAML of srunbook generate.")
@click.option("--cluster", metavar="NAME", help=f"A site: {', '.join(sites.names())}.")
@click.option("--set", "changes", metavar="KEY=VALUE", multiple=True, help="Change one field; can be repeated.")
@click.option("--in-place", is_flag=True, help="Write the file SCRIPT itself, whole or not at all.")
@click.option("--diff", is_flag=True, help="Show what would change, as a unified diff, and write nothing.")
def command(
    script: str, config: str | None, cluster: str | None, changes: tuple[str, ...], in_place: bool, diff: bool
) -> None:
    """Fit a job script to your cluster: partition, account, GPUs, CPUs, environment.

    Standard output carries the script, with every other byte as it was; standard error says what was changed, and why.
    SCRIPT is a file, or - for standard input.
    """
    from srunbook.adapt import adapt
    from srunbook.script import ScriptError

    if in_place and (diff or script == "-"):
        refuse(f"--in-place writes the file, so it cannot go with {'--diff' if diff else 'standard input'}")
    there = read_site(config, cluster, changes)
    data = read_script(script)
    try:
        made = adapt(data, there)
    except ScriptError as error:
        say("adapt", f"{script}:{error.line}: {error.problem}")
        sys.exit(3)
    if in_place:
        write(Path(script), made.data)
    else:
        emit("adapt", difference(script, data, made.data) if diff else made.data)
    for change in made.changes:
        say("adapt", f"{script}:{change.line}: {change.text} [{change.field}: {change.origin}]")
    for line, text in made.notes:
        say("adapt", f"{script}:{line}: left as it is: {text}")
    if not made.changes:
        say("adapt", f"{script}: nothing to change")


def read_site(config: str | None, cluster: str | None, changes: tuple[str, ...]) -> Site:
    """Read what the options say of the site; exit with status 2 if it is wrong or nothing."""
    from srunbook import adapt, generate

    try:
        layers = [generate.read_config(Path(config))] if config is not None else []
        layers += [generate.Layer("--cluster", {"cluster": cluster})] if cluster is not None else []
        layers += generate.settings(changes)
        there = adapt.site(*layers)
    except generate.JobError as error:
        for problem in error.problems:
            say("adapt", problem)
        sys.exit(2)
    if not there.values:
        refuse("nothing says what to adapt to. Give --config my_cluster.yaml, --cluster NAME, or --set partition=NAME")
    return there


def read_script(script: str) -> bytes:
    """Read the script; exit with status 2 if that fails."""
    from srunbook._files import read_whole

    try:
        data = sys.stdin.buffer.read(MOST + 1) if script == "-" else read_whole(Path(script), MOST)
    except (OSError, ValueError) as error:
        refuse(f"{script}: {getattr(error, 'strerror', None) or error}. Give a job script")
    if len(data) > MOST:
        refuse(f"standard input: more than {MOST} bytes, which is too long for a job script")
    return data


def write(path: Path, data: bytes) -> None:
    """Write a script in place: a link stays a link, and mode bits and owner stay."""
    from srunbook._files import write_whole

    try:
        target = Path(os.path.realpath(path))
        write_whole(target, data, like=target.stat())
    except OSError as error:
        say("adapt", f"{path}: {error.strerror or error}; the file is as it was")
        sys.exit(1)


def difference(name: str, before: bytes, after: bytes) -> bytes:
    """Show the changes as a unified diff."""
    old, new = (data.splitlines(keepends=True) for data in (before, after))
    lines = difflib.diff_bytes(difflib.unified_diff, old, new, name.encode(), name.encode(), n=1)
    return b"".join(line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n" for line in lines)


def refuse(text: str) -> NoReturn:
    """Say what is wrong and exit with status 2."""
    say("adapt", text)
    sys.exit(2)
