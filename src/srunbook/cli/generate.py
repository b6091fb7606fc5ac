"""`srunbook generate`: write a job script for sbatch from a profile, a configuration file and options."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from srunbook import sites
from srunbook.cli._speaking import emit, say

if TYPE_CHECKING:
    from srunbook.generate import ResolvedJob

MARK = "\n# Made by: "
"""A line of a rendered script begins with this, and names the command."""


@click.command(
    "generate",
    epilog="""\b
Example:
  srunbook generate --profile small --script train.py -- --epochs 3 | sbatch

\b
Later ones override earlier ones: profile, cluster, configuration file, options, --set.

\b
Exit status:
  0   the script was written
  1   it could not be written, for example because the disk is full
  2   bad input; nothing was written
""",
)
@click.option("--list-profiles", is_flag=True, help="Show the profiles and exit.")
@click.option("--schema", "show_schema", is_flag=True, help="Show the JSON Schema of configuration files and exit.")
@click.option("--profile", metavar="NAME", help="A size: debug, small, medium, large, production.")
@click.option("--cluster", metavar="NAME", help=f"A site: {', '.join(sites.names())}.")
@click.option("--config", metavar="FILE", help="A configuration file in YAML.")
@click.option("--framework", metavar="NAME", help="jax, torchrun, lightning or gloo. [default: jax]")
@click.option("--script", metavar="FILE", help="The Python program that the job runs.")
@click.option("--set", "changes", metavar="KEY=VALUE", multiple=True, help="Change one field; can be repeated.")
@click.option("--output", metavar="FILE", help="Write the script to this file. [default: standard output]")
@click.option("--explain", is_flag=True, help="Show why each line is there instead of the script.")
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
    """Write a job script for sbatch; arguments after -- go to the program.

    Standard output carries only the script, so you can pipe it to sbatch.
    """
    from srunbook import generate

    if list_profiles:
        emit("generate", profiles())
        return
    if show_schema:
        emit("generate", f"{json.dumps(generate.schema(), indent=2)}\n")
        return
    if explain and output is not None:
        refuse("--explain does not write a job script, so it has no --output. Leave out one of them")
    options = {"profile": profile, "cluster": cluster, "framework": framework, "script": script}
    try:
        layers = [generate.read_config(Path(config))] if config is not None else []
        layers += [generate.Layer(f"--{name}", {name: value}) for name, value in options.items() if value is not None]
        if arguments:
            layers.append(generate.Layer("after --", {"arguments": list(arguments)}))
        job = generate.specify(*layers, *generate.settings(changes))
        made_by = typed(options, config, changes, arguments)
        text = explanation(job) if explain else generate.render(job.specification, made_by=made_by)
    except generate.JobError as error:
        for problem in error.problems:
            say("generate", problem)
        sys.exit(2)
    if output is None:
        emit("generate", text)
    else:
        write(Path(output), text)
    warning = generate.warning(job.specification)
    if warning and not explain:
        say("generate", f"note: {warning}")


def typed(
    options: dict[str, str | None], config: str | None, changes: tuple[str, ...], arguments: tuple[str, ...]
) -> str:
    """Return the command that makes the same script again."""
    words = ["srunbook", "generate"]
    for name, value in {"config": config, **options}.items():
        words += [f"--{name}", value] if value is not None else []
    for change in changes:
        words += ["--set", change]
    return shlex.join([*words, "--", *arguments] if arguments else words)


def write(path: Path, text: str) -> None:
    """Write a script whole; replace nothing but a script that this command made; keep a link a link."""
    from srunbook._files import write_whole

    try:
        if path.exists() and not (path.is_file() and MARK in path.read_text(encoding="utf-8", errors="replace")):
            refuse(f"--output {path}: the file exists, and this command did not make it. Choose another name")
        write_whole(path.resolve(), text)
    except OSError as error:
        refuse(f"--output {path}: {error.strerror}; nothing was written", status=1)


def refuse(text: str, status: int = 2) -> NoReturn:
    """Say what is wrong and exit."""
    say("generate", text)
    sys.exit(status)


def profiles() -> str:
    """List the profiles, one on each line, with their devices and connections on CPUs."""
    from srunbook import generate

    lines = []
    for name in generate.PROFILES:
        job = generate.specify(generate.Layer("--profile", {"profile": name, "script": "train.py"})).specification
        nodes = f"{job.nodes} node{'s' * (job.nodes > 1)}"
        remedy = generate.advice(job)
        lines.append(
            f"{name:<12}{nodes:>7} x {job.cpus_per_node:>2} CPUs = {job.devices:>3} devices"
            f"   {job.time_limit}   {job.memory_per_cpu}/CPU   {generate.connections(job):>4} connections"
            f"{f' ({remedy})' if remedy else ''}\n"
        )
    lines.append("\nconnections: of each process, with JAX on CPUs. Each is an open file; many systems allow 1024.\n")
    return "".join(lines)


def explanation(job: ResolvedJob) -> str:
    """Return the lines of the script, each with its reason and the origin of its values."""
    from srunbook import generate

    text = ""
    for line in generate.explain(job):
        places = "; ".join(f"{name}: {place}" for name, place in line.origins)
        text += f"{line.text.rstrip()}\n    {line.reason}{f' [{places}]' if places else ''}\n"
    return text
