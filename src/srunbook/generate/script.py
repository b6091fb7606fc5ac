"""From a specification to the text of a job script, and to the reasons of its lines.

The template is Jinja. A comment `{# fields: reason #}` by itself explains the next line.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import jinja2

from srunbook.generate.layers import JobError, ResolvedJob
from srunbook.generate.specification import (
    TEXT,
    TORCHRUN_SIGNALS,
    JobSpecification,
    advice,
    connections,
)

Context = Mapping[str, str | int | bool | None]

NOTE = re.compile(r"^\{# ([a-z_, ]+): (.*) #\}\n(.*)\n", re.MULTILINE)
"""A comment that explains the next line, and that line."""

PLAIN = re.compile(r"(?:--[A-Za-z0-9][A-Za-z0-9_-]*=)?[A-Za-z0-9_./:@%+-]+")
"""Words that mean themselves to bash, and to a reader."""

KEYWORDS = frozenset(
    {"case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if", "in", "select", "then"}
    | {"time", "until", "while"}
)
"""Words of bash itself, quoted so that nobody takes an argument for one."""

COMMENT_COLUMN = 18
"""Options that a comment follows are filled up to the same width, so that their comments begin in one column."""

PLAIN_FIELDS = (
    *("time_limit", "partition", "account", "qos", "constraint", "nodes", "memory_per_cpu", "memory_per_node"),
    *("exclusive", "requeue", "coordinator_port", "network_interface"),
)
"""Fields that the template takes unchanged: their patterns let no character through that bash would act upon."""


@dataclass(frozen=True)
class ScriptLine:
    """A line of a script, and what it is for.

    Args:
        text: The line.
        reason: Why it is there; empty for comments and empty lines.
        origins: Where its values came from: pairs of a field and a place.
    """

    text: str
    reason: str
    origins: tuple[tuple[str, str], ...]


@cache
def source() -> str:
    """Read the template of a job script."""
    return files("srunbook.generate").joinpath("job.sbatch.template").read_text(encoding="utf-8")


@cache
def template() -> jinja2.Template:
    """Compile the template, with marks that no value can hold around each reason and its line."""
    jinja = jinja2.Environment(  # noqa: S701 - a script is no HTML
        undefined=jinja2.StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    )
    return jinja.from_string(NOTE.sub("\x01\\1\x02\\2\x02\\3\x01", source()))


def rendered(values: Context) -> Iterator[tuple[str, str, list[str], int]]:
    """Render the template; yield each line with its reason, its fields, and its number where a value has several."""
    for place, chunk in enumerate(template().render(values).split("\x01")):
        if place % 2:
            fields, reason, lines = chunk.split("\x02")
            for part, line in enumerate(lines.split("\n")):
                yield line, reason, [name for name in fields.split(", ") if name != "always"], part
        else:
            yield from ((line, "", [], 0) for line in chunk.split("\n")[:-1])


def render(specification: JobSpecification, *, made_by: str | None = None) -> str:
    """Render the text of a job script for sbatch.

    Args:
        specification: The job.
        made_by: The command that makes the script again, for a comment.

    Returns:
        The script, which ends with the end of a line.

    Raises:
        JobError: `made_by` has a control character.
    """
    return "".join(f"{line}\n" for line, *_ in rendered(context(specification, made_by)))


def explain(job: ResolvedJob, *, made_by: str | None = None) -> list[ScriptLine]:
    """Render a job script, each line with its reason and the places that its values came from.

    Args:
        job: The job.
        made_by: The command that makes the script again, for a comment.

    Raises:
        JobError: `made_by` has a control character.
    """
    return [
        ScriptLine(line, reason, tuple(origins(job, fields, part)))
        for line, reason, fields, part in rendered(context(job.specification, made_by))
    ]


def origins(job: ResolvedJob, fields: list[str], part: int) -> Iterator[tuple[str, str]]:
    """Name the fields of a line and where they came from."""
    specification = job.specification
    for name in fields:
        if name == "env_vars":
            variable = list(specification.env_vars)[part]
            yield f"env_vars.{variable}", job.origin("env_vars", variable)
        elif name == "modules_to_load":
            yield f"modules_to_load[{part}]", job.origin("modules_to_load", part)
        elif name == "arguments":
            if part:
                yield f"arguments[{part - 1}]", job.origin("arguments", part - 1)
        elif not (name == "script" and part) and (not name.startswith("gpu") or getattr(specification, name)):
            yield name, job.origin(name)


def context(specification: JobSpecification, made_by: str | None) -> Context:
    """Give each name in the template its value: a text that is safe where the template has it, or a yes or no."""
    one = specification
    if made_by is not None and (re.search(r"[\ud800-\udfff]", made_by) or not re.fullmatch(TEXT, made_by)):
        raise JobError(
            [f"made by {made_by!r}: a comment has one line of UTF-8, and this has a control character or other bytes"]
        )
    folder, file = one.log
    return {
        **{name: getattr(one, name) for name in PLAIN_FIELDS},
        "summary": summary(one),
        "made_by": made_by,
        # Slurm
        "job_name": one.job_name,
        "output_file": file,
        "no_requeue": one.requeue is False,
        "signal": one.signal and column(f"--signal={one.signal}"),
        "gpus": gpus(one),
        "tasks": column(f"--ntasks-per-node={one.tasks}"),
        "tasks_are": tasks_are(one),
        "cpus": column(f"--cpus-per-task={one.cpus_per_node // one.tasks}"),
        "cpus_are": "for all processes of a node together" if one.framework == "torchrun" else "of each process",
        # the shell
        "log_folder": folder,
        "log_file": file.replace("%j", "${SLURM_JOB_ID}").replace("%x", "${SLURM_JOB_NAME}"),
        "modules": "\n".join(f"module load {quote(name)}" for name in one.modules_to_load),
        "venv": one.virtual_environment and quote_place(one.virtual_environment),
        "conda": one.conda_environment and conda_activation(one.conda_environment),
        "image": one.container_image and quote_place(one.container_image),
        "exports": "\n".join(f"export {name}={quote(text)}" for name, text in one.env_vars.items()),
        # the framework
        **{name: one.framework == name for name in ("jax", "torchrun", "lightning", "gloo")},
        "jax_on_cpu": one.framework == "jax" and one.platform == "cpu",
        "torch_under_srun": one.framework in ("lightning", "gloo"),
        "rendezvous": one.framework in ("torchrun", "gloo"),
        "devices": one.devices_per_process or '"$SLURM_CPUS_PER_TASK"',
        "connections_are": connections_are(one),
        "processes": one.processes,
        "processes_are": "on each node: one for each GPU" if one.gpus == one.processes else "on each node",
        "torchrun_signals": one.framework == "torchrun" and bool(one.signal) and not one.older_torchrun,
        "signals": signals(one),
        "grace": max(1, one.stop[1] * 3 // 4),
        "program": "\n  ".join(quote(word) for word in (one.script, *one.arguments)),
        "early": early(one),
        "launcher": launcher(one),
    }


def column(option: str) -> str:
    """Fill an option up to the column of the comments."""
    return option.ljust(COMMENT_COLUMN + 2)


def gpus(one: JobSpecification) -> str | None:
    """Ask for GPUs, if any."""
    kind, colon, _ = str(one.gpus_per_node).rpartition(":")
    option = one.gpu_option or ("gres" if colon else "gpus-per-node")
    if not one.gpus or option == "none":
        return None
    count = one.gpus // one.tasks if option == "gpus-per-task" else one.gpus
    return f"--{option}={'gpu:' if option == 'gres' else ''}{kind}{colon}{count}"


def tasks_are(one: JobSpecification) -> str:
    """Say what the tasks of a node are."""
    if one.framework == "torchrun":
        return "one torchrun on each node, which starts the processes"
    if one.gpus == one.processes:
        return "one process for each GPU"
    return "one process on each node" if one.processes == 1 else "processes on each node"


def connections_are(one: JobSpecification) -> str:
    """Say how many connections follow from the number of devices."""
    count, way_out = connections(one), advice(one)
    told = f"; so each process has about {count} connections, each an open file" if count else ""
    return f"{told}, and many systems allow 1024: {way_out}" if way_out else told


def summary(one: JobSpecification) -> str:
    """Say in one line what the job is."""

    def many(number: int, word: str, ending: str = "s") -> str:
        return f"{number} {word}{ending if number > 1 else ''}"

    programs = {"jax": "JAX", "torchrun": "torchrun", "lightning": "Lightning", "gloo": "torch.distributed over gloo"}
    each = many(one.gpus, "GPU") if one.gpus else many(one.cpus_per_node, "CPU")
    devices = f", {many(one.devices, 'device')}" if one.framework == "jax" else ""
    processes = many(one.nodes * one.processes, "process", "es")
    return f"{programs[one.framework]} on {many(one.nodes, 'node')} of {each}: {processes}{devices}."


def signals(one: JobSpecification) -> str:
    """List the signals that torchrun passes on: those it knows by itself, and the job's own."""
    own = one.stop[0]
    return '"' + ",".join([*TORCHRUN_SIGNALS, *([own] if own not in TORCHRUN_SIGNALS else [])]) + '"'


def early(one: JobSpecification) -> str | None:
    """Return the signal of the job if it ends a program that does not listen yet, and if nobody else sends it."""
    return next((name for name in ("USR1", "USR2") if one.stop[0] == f"SIG{name}"), None)


def launcher(one: JobSpecification) -> str:
    """Return what srun starts, before the program."""
    words = ['"${EARLY[@]}"'] if early(one) else []
    if one.framework == "gloo":
        words.append('bash -c "$AS_RANK" bash')
    if one.container_image:
        words.append(f'singularity run{" --nv" if one.gpus else ""} "$IMAGE"')
    words.append('torchrun "${TORCHRUN_ARGS[@]}"' if one.framework == "torchrun" else "python")
    return " ".join(words)


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
    return f'"{variable}/{match[2]}"' if PLAIN.fullmatch(match[2]) else f'"{variable}"/{quote(match[2])}'


def conda_activation(environment: str) -> str:
    """Write the words after `source` that activate a conda environment; the shell needs no `conda init`.

    An environment in `~/.conda` belongs to a conda that only the site may write to, such as one from a module. It says
    itself where it is.

    >>> print(conda_activation("~/miniforge3/envs/torch-env"))
    "$HOME/miniforge3/bin/activate" torch-env
    >>> print(conda_activation("~/.conda/envs/torch-env"))
    "$(conda info --base)/bin/activate" torch-env
    """
    conda, _, name = environment.rpartition("/envs/")
    base = '"$(conda info --base)/bin/activate"' if conda.endswith("/.conda") else quote_place(f"{conda}/bin/activate")
    return f"{base} {quote(name)}"
