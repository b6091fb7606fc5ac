"""What a command prints: its product on standard output, everything else on standard error."""

from __future__ import annotations

import contextlib
import sys

import click

from srunbook._text import printable


def say(command: str, text: str) -> None:
    """Say something on standard error, without characters that a terminal would act upon."""
    click.echo(f"srunbook {command}: {printable(text)}", err=True)


def emit(command: str, product: str) -> None:
    """Write to standard output; exit with status 1 if it does not take everything."""
    try:
        click.echo(product.encode(), nl=False)
    except BrokenPipeError:
        raise  # click ends quietly
    except OSError as error:
        say(command, f"standard output: {error.strerror}; the script was not written whole")
        with contextlib.suppress(OSError):
            sys.stdout.close()  # or its rest is tried again at the end
        sys.exit(1)
