"""From a specification to the text of a job script, and to the reasons of its lines.

The template is Jinja. Its blocks `{% call because(reason, *fields) %}` hold the lines that a reason is for.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import jinja2

from srunbook.generate.layers import ResolvedJob, dotted
from srunbook.generate.specification import TORCHRUN_SIGNALS, JobSpecification, advice, connections

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class ScriptLine:
    """A line of a script, why it is there, and where its values came from: pairs of a field and a place."""

    text: str
    reason: str
    origins: tuple[tuple[str, str], ...]


@cache
def template() -> jinja2.Template:
    """Compile the template."""
    jinja = jinja2.Environment(  # noqa: S701 - a script is no HTML
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    jinja.filters |= {
        "directive": quote_directive,
        "shell": shlex.quote,
        "place": quote_place,
        "conda": conda_activation,
    }
    jinja.globals |= {"summary": summary, "gpu_request": gpu_request, "TORCHRUN_SIGNALS": TORCHRUN_SIGNALS}
    jinja.globals |= {"connections": connections, "advice": advice}
    return jinja.from_string(files("srunbook.generate").joinpath("job.sbatch.template").read_text(encoding="utf-8"))


def _rendered(job: JobSpecification, made_by: str | None) -> tuple[str, list[tuple[str, str, tuple[str | Path, ...]]]]:
    """Render the template; return the script, and each line that has a reason with it and with its fields."""
    lines: list[tuple[str, str, tuple[str | Path, ...]]] = []

    def because(reason: str, *fields: str | Path, caller: Callable[[], str]) -> str:
        text = caller()
        lines.extend((line, reason, fields) for line in text.removesuffix("\n").split("\n"))
        return text

    return template().render(job=job, made_by=made_by, because=because), lines


def render(job: JobSpecification, *, made_by: str | None = None) -> str:
    """Render the text of a job script for sbatch; `made_by`, the command that makes it again, goes to a comment."""
    return _rendered(job, made_by)[0]


def explain(job: ResolvedJob) -> list[ScriptLine]:
    """Return the lines of a job's script, without comments, each with its reason and the places of its values."""
    explained = []
    for text, reason, fields in _rendered(job.specification, None)[1]:
        paths = [(field,) if isinstance(field, str) else field for field in fields]
        origins = tuple((dotted(path), job.origin(*path)) for path in paths)
        explained.append(ScriptLine(text, reason, origins))
    return explained


def gpu_request(job: JobSpecification) -> str | None:
    """Return the option that asks for GPUs, if any."""
    kind, colon, _ = str(job.gpus_per_node).rpartition(":")
    option = job.gpu_option or ("gres" if colon else "gpus-per-node")
    if not job.gpus or option == "none":
        return None
    count = job.gpus // job.tasks if option == "gpus-per-task" else job.gpus
    return f"--{option}={'gpu:' if option == 'gres' else ''}{quote_directive(kind)}{colon}{count}"


def summary(job: JobSpecification) -> str:
    """Say in one line what the job is."""

    def many(number: int, word: str, ending: str = "s") -> str:
        return f"{number} {word}{ending if number > 1 else ''}"

    programs = {"jax": "JAX", "torchrun": "torchrun", "lightning": "Lightning", "gloo": "torch.distributed over gloo"}
    each = many(job.gpus, "GPU") if job.gpus else many(job.cpus_per_node, "CPU")
    devices = f", {many(job.devices, 'device')}" if job.framework == "jax" else ""
    processes = many(job.nodes * job.processes, "process", "es")
    return f"{programs[job.framework]} on {many(job.nodes, 'node')} of {each}: {processes}{devices}."


def quote_directive(value: object) -> str:
    r"""Quote a value after `#SBATCH`: sbatch knows double quotes and backslashes, and `#` begins a comment.

    >>> print(quote_directive("[a100*2|h100]&!old"), quote_directive('it\'s "a" #1'))
    [a100*2|h100]&!old "it's \"a\" #1"
    """
    text = str(value)
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"' if re.search(r"""[\s"'\\#]""", text) else text


def quote_place(place: str) -> str:
    r"""Quote a path; bash still expands a `~` or a variable at its beginning.

    >>> print(quote_place("~/jax-env"), quote_place("${IMAGE}"), quote_place("/a b"), quote_place("~/a $b"))
    "$HOME/jax-env" "${IMAGE}" "/a b" "$HOME/a \$b"
    """
    match = re.match(r"(?:~|\$\w+|\$\{\w+\})(?=/|$)", place, re.ASCII)
    first = match[0] if match else ""
    rest = re.sub(r'(["\\$`])', r"\\\1", place[len(first) :])
    return f'"{"$HOME" if first == "~" else first}{rest}"'


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
    return f"{base} {shlex.quote(name)}"
