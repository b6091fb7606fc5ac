"""`srunbook generate`: a job script for sbatch from a profile, a configuration file and options."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from srunbook.jobs import Job

MARK = "# Made by: "
"""What the third line of a rendered script begins with, which names the command."""


@click.command(
    "generate",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Example:
  srunbook generate --profile small --script train.py -- --epochs 3 | sbatch

\b
Later wins: profile, cluster, configuration file, options, --set.

\b
Exit status:
  0   the script was written
  1   it could not be written, as on a full disk
  2   bad input; nothing was written
""",
)
@click.option("--list-profiles", is_flag=True, help="Show the profiles and end.")
@click.option("--schema", "show_schema", is_flag=True, help="Show the JSON Schema of configuration files and end.")
@click.option("--profile", metavar="NAME", help="A size: debug, small, medium, large, production.")
@click.option("--cluster", metavar="NAME", help="A site: generic, ibex, raven, crusoe-like.")
@click.option("--config", metavar="FILE", help="A configuration file, YAML.")
@click.option("--framework", metavar="NAME", help="jax, torchrun, lightning or gloo. [default: jax]")
@click.option("--script", metavar="FILE", help="The Python program that the job runs.")
@click.option("--set", "changes", metavar="KEY=VALUE", multiple=True, help="Change one field; may be repeated.")
@click.option("--output", metavar="FILE", help="Write the script there. [default: standard output]")
@click.option("--explain", is_flag=True, help="Show why each line is there, in place of the script.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(
    list_profiles: bool,
    show_schema: bool,
    profile: str | None,
    cluster: str | None,
    config: str | None,
    framework: str | None,
    script: str | None,
    changes: tuple[str, ...],
    output: str | None,
    explain: bool,
    arguments: tuple[str, ...],
) -> None:
    """Write a job script for sbatch; what follows -- goes to the program.

    Standard output carries only the script, so that it can be piped to sbatch.
    """
    from srunbook import jobs

    if list_profiles:
        emit(profiles())
        return
    if show_schema:
        emit(schema_text())
        return
    if explain and output is not None:
        refuse("--explain is for reading, and what it shows is no job script. Leave out --output or --explain")
    options = {"profile": profile, "cluster": cluster, "framework": framework, "script": script}
    try:
        layers = [jobs.read_config(Path(config))] if config is not None else []
        layers += [jobs.Layer(f"--{name}", {name: value}) for name, value in options.items() if value is not None]
        if arguments:
            layers.append(jobs.Layer("after --", {"arguments": list(arguments)}))
        job = jobs.specify(*layers, *jobs.settings(changes))
        made_by = typed(options, config, changes, arguments)
        text = explanation(job, made_by) if explain else jobs.render(job.specification, made_by=made_by)
    except jobs.JobError as error:
        for problem in error.problems:
            say(problem)
        sys.exit(2)
    if output is None:
        emit(text)
    else:
        write(Path(output), text)
    way_out = jobs.advice(job.specification)
    if way_out and not explain:
        count = jobs.connections(job.specification)
        say(f"note: each process has about {count} connections, and many systems let it open 1024 files: {way_out}")


def say(text: str) -> None:
    """Tells what is wrong on standard error, without characters that a terminal would act upon."""
    printable = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
    click.echo(f"srunbook generate: {printable}", err=True)


def emit(text: str) -> None:
    """Writes to standard output; what it does not take all of ends with status 1."""
    try:
        if sys.stdout is None:
            raise OSError(errno.EBADF, "it is closed")
        click.echo(text.encode(), nl=False)
    except BrokenPipeError:
        raise  # click ends quietly
    except OSError as error:
        say(f"standard output: {error.strerror}; what was written there is no whole script")
        with contextlib.suppress(OSError, AttributeError):
            sys.stdout.close()  # or its rest is tried again at the end
        sys.exit(1)


def typed(
    options: dict[str, str | None], config: str | None, changes: tuple[str, ...], arguments: tuple[str, ...]
) -> str:
    """The command that makes the same script again."""
    words = ["srunbook", "generate"]
    for name, value in {"config": config, **options}.items():
        words += [f"--{name}", value] if value is not None else []
    for change in changes:
        words += ["--set", change]
    return shlex.join([*words, "--", *arguments] if arguments else words)


def write(path: Path, text: str) -> None:
    """Writes a script whole, over nothing but a script that this command made; a link stays a link."""
    from srunbook.formats import write_whole

    try:
        if path.exists() and not (path.is_file() and ours(path)):
            refuse(f"--output {path}: it is there, and is no script that this command made. Choose another name")
        target = Path(os.path.realpath(path))
        if not target.parent.is_dir():
            refuse(f"--output {path}: there is no folder {path.parent}. Make it, or name another")
        write_whole(target, text)
    except (OSError, ValueError) as error:
        say(f"--output {path}: {getattr(error, 'strerror', None) or error}; nothing was written")
        sys.exit(1)


def ours(path: Path) -> bool:
    """Whether a file is a script that this command made: the first and the third line say so."""
    with path.open("rb") as stream:
        first, _, third = (stream.readline(65536) for _ in range(3))
    return first == b"#!/bin/bash\n" and third.startswith(MARK.encode())


def refuse(text: str) -> None:
    """Ends with status 2."""
    say(text)
    sys.exit(2)


def profiles() -> str:
    """The profiles, one on each line, with the devices and connections that they make on CPUs."""
    from srunbook import jobs

    lines = []
    for name in jobs.PROFILES:
        one = jobs.specify(jobs.Layer("--profile", {"profile": name, "script": "train.py"})).specification
        nodes = f"{one.nodes} node{'s' * (one.nodes > 1)}"
        way_out = jobs.advice(one)
        lines.append(
            f"{name:<12}{nodes:>7} x {one.cpus_per_node:>2} CPUs = {one.devices:>3} devices"
            f"   {one.time_limit}   {one.memory_per_cpu}/CPU   {jobs.connections(one):>4} connections"
            f"{f' ({way_out})' if way_out else ''}\n"
        )
    lines.append("\nconnections: of each process, with JAX on CPUs. Each is an open file; many systems allow 1024.\n")
    return "".join(lines)


def schema_text() -> str:
    """The JSON Schema of configuration files."""
    from srunbook import jobs

    return json.dumps(jobs.schema(), indent=2, ensure_ascii=True) + "\n"


def explanation(job: Job, made_by: str) -> str:
    """The lines of the script, each with its reason and where its values came from."""
    from srunbook import jobs

    told = []
    for line in jobs.explain(job, made_by=made_by):
        if not line.reason:
            continue
        places = "; ".join(f"{name}: {place}" for name, place in line.origins)
        told.append(f"{line.text.rstrip()}\n    {line.reason}{f' [{places}]' if places else ''}\n")
    return "".join(told)
