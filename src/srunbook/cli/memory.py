"""Run `srunbook memory`."""

from __future__ import annotations

import click

from srunbook import memory


def gigabytes(count: int) -> str:
    """Write bytes as GB with two digits, halves rounded up.

    >>> gigabytes(1_234_567_890), gigabytes(5_000_000)
    ('1.23', '0.01')
    """
    hundredths = (count + 5_000_000) // 10_000_000
    return f"{hundredths // 100}.{hundredths % 100:02}"


@click.command(
    "memory",
    epilog="""\b
Example:
  srunbook memory 7B --gpus 16
  srunbook memory 7B --gpus 16 --sharing 8 --precision bf16

\b
Exit status: 0, or 2 for bad input.
""",
)
@click.option("--gpus", type=click.IntRange(1, 1_000_000), default=1, show_default=True, help="GPUs on all nodes.")
@click.option(
    "--sharing",
    type=click.IntRange(1, 1_000_000),
    help="GPUs that share one copy of the model, such as those of a node. [default: all]",
)
@click.option("--optimizer", type=click.Choice(list(memory.OPTIMIZERS)), default="adamw", show_default=True)
@click.option(
    "--precision",
    type=click.Choice(list(memory.PRECISIONS)),
    default="mixed",
    show_default=True,
    help="'mixed' computes in 16 bits and keeps everything in 32; 'bf16' keeps everything in 16.",
)
@click.argument("count", metavar="PARAMETERS")
def command(count: str, gpus: int, sharing: int | None, optimizer: str, precision: str) -> None:
    """Say how much memory a model takes on each GPU.

    PARAMETERS is the number of parameters, such as 7B, 350M or 124439808. A GB is 10^9 bytes. Activations are extra,
    and with FSDP also the layers that a GPU fetches while it computes.
    """
    try:
        parameters = memory.read_count(count)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    sharing = sharing or gpus
    if gpus % sharing:
        raise click.UsageError(f"{gpus} GPUs do not divide into groups of {sharing}: choose a divisor for --sharing")
    everything = memory.whole(parameters, memory.PRECISIONS[precision], optimizer)
    rows = {"DDP, each GPU holds all": everything, f"FSDP, {sharing} share a copy": everything.divided(sharing)}
    table: list[tuple[str, ...]] = [("GB on each GPU", "parameters", "gradients", "optimizer", "together")]
    for name, need in rows.items():
        table.append((name, *map(gigabytes, (need.parameters, need.gradients, need.optimizer, need.total))))
    first, *widths = (max(map(len, column)) for column in zip(*table, strict=True))
    for name, *cells in table:
        click.echo(
            f"{name:{first}}" + "".join(f"{cell:>{width + 2}}" for cell, width in zip(cells, widths, strict=True))
        )
