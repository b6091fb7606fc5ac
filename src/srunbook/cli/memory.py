"""Run `srunbook memory`."""

from __future__ import annotations

import math
from typing import Any

import click

from srunbook import memory

LARGEST = {name: click.IntRange(1, most) for name, most in memory.FORMULAS["largest"].items()}


def gigabytes(count: float) -> str:
    """Write bytes as GB with two digits, halves rounded up.

    >>> gigabytes(1_234_567_890), gigabytes(5_000_000)
    ('1.23', '0.01')
    """
    return f"{math.floor(count / 10_000_000 + 0.5) / 100:.2f}"


def verdict(
    count: int, size: float, shape: memory.Transformer | None, options: dict[str, Any], fitting: dict[str, int]
) -> str:
    """Say which layout to use, or on how many GPUs the last one would fit."""
    if shape is None:
        left = size - memory.estimate(count, "FSDP", **options)["most"]
        if left > 0:
            return f"FSDP leaves {gigabytes(left)} GB. To count activations: --layers, --width and --vocabulary."
        return f"FSDP lacks {gigabytes(-left)} GB: use more GPUs."
    for name, sequences in fitting.items():
        if sequences:
            return f"Use {name}. Sequences of {shape.length} tokens on each GPU at a time: {sequences}."
    *_, last = memory.LAYOUTS
    more = options["sharing"]
    while more <= memory.FORMULAS["largest"]["gpus"] / 2:
        more *= 2
        if memory.sequences_that_fit(size, count, last, shape=shape, **{**options, "gpus": more, "sharing": more}):
            return f"Nothing fits. Share each copy among {more} GPUs: {last}, then fits."
    return f"A sequence of {shape.length} tokens is too long for these layouts: use tensor or context parallelism."


def shape_of(
    count: int, layers: int | None, width: int | None, vocabulary: int | None, length: int, *, tied: bool
) -> memory.Transformer | None:
    """Return the shape that the options give, or None if they give none."""
    if not (layers or width or vocabulary):
        return None
    if not (layers and width and vocabulary):
        raise click.UsageError("activations need layers, width and vocabulary")
    words = (1 if tied else 2) * vocabulary * width
    if words >= count:
        raise click.UsageError(
            f"embedding and head have {words} parameters, and the model has {count}: check --width, --vocabulary "
            "and --tied"
        )
    return memory.Transformer(layers, width, vocabulary, length, tied)


@click.command(
    "memory",
    epilog="""\b
Example:
  srunbook memory 7B --gpus 16
  srunbook memory 8B --gpus 16 --layers 32 --width 4096 --vocabulary 128256 --gpu-memory 80

\b
Exit status: 0, or 2 for bad input.
""",
)
@click.option("--gpus", type=LARGEST["gpus"], default=1, show_default=True, help="GPUs on all nodes.")
@click.option(
    "--sharing",
    type=LARGEST["sharing"],
    help="GPUs that share one copy of the model, such as those of a node. [default: all]",
)
@click.option("--optimizer", type=click.Choice(memory.OPTIMIZERS), default="adamw", show_default=True)
@click.option(
    "--precision",
    type=click.Choice(list(memory.PRECISIONS)),
    default="mixed",
    show_default=True,
    help="'mixed' computes in 16 bits and keeps everything in 32; 'master' keeps 16 bits and a copy in 32; "
    "'bf16' keeps everything in 16.",
)
@click.option("--layers", type=LARGEST["layers"], help="Number of blocks.")
@click.option("--width", type=LARGEST["width"], help="Hidden size.")
@click.option("--vocabulary", type=LARGEST["vocabulary"], help="Number of different tokens.")
@click.option("--length", type=LARGEST["length"], default=4096, show_default=True, help="Tokens in a sequence.")
@click.option("--tied", is_flag=True, help="Embedding and head share their weights.")
@click.option("--gpu-memory", type=LARGEST["gpu-memory"], help="GB on each GPU, as in its name: 80.")
@click.argument("count", metavar="PARAMETERS")
def command(
    count: str,
    gpus: int,
    sharing: int | None,
    optimizer: str,
    precision: str,
    layers: int | None,
    width: int | None,
    vocabulary: int | None,
    length: int,
    tied: bool,
    gpu_memory: int | None,
) -> None:
    """Say how much memory a model takes on each GPU, and what fits.

    PARAMETERS is the number of parameters, such as 7B, 350M or 124439808. A GB is 10^9 bytes. CUDA, NCCL and the gaps
    between tensors are extra, and a GPU of 80 GB has room for them: it has 85.
    """
    try:
        parameters = memory.read_count(count)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    sharing = sharing or gpus
    if gpus % sharing:
        raise click.UsageError(f"{gpus} GPUs do not divide into groups of {sharing}: choose a divisor for --sharing")
    shape = shape_of(parameters, layers, width, vocabulary, length, tied=tied)
    options: dict[str, Any] = {"gpus": gpus, "sharing": sharing, "precision": precision, "optimizer": optimizer}
    layouts = memory.LAYOUTS if shape else memory.LAYOUTS[:2]
    needs = [memory.estimate(parameters, name, shape=shape, **options) for name in layouts]
    table = [["GB on each GPU", *layouts]]
    for label, name in {**memory.FORMULAS["rows"], "most at once": "most"}.items():
        if name in needs[0]:
            table.append([label, *(gigabytes(need[name]) for need in needs)])
    fitting = {}
    if gpu_memory and shape:
        fitting = {
            name: memory.sequences_that_fit(gpu_memory * 1e9, parameters, name, shape=shape, **options)
            for name in layouts
        }
        table.append([f"sequences in {gpu_memory} GB", *map(str, fitting.values())])
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for first, *cells in table:
        pairs = zip(cells, widths[1:], strict=True)
        click.echo(f"{first:{widths[0]}}" + "".join(f"{cell:>{width + 2}}" for cell, width in pairs))
    if gpu_memory:
        click.echo(verdict(parameters, gpu_memory * 1e9, shape, options, fitting))
