"""What a command prints: its product on standard output, everything else on standard error."""

from __future__ import annotations

import contextlib
import errno
import sys

import click


def say(command: str, text: str) -> None:
    """Say something on standard error, without characters that a terminal would act upon."""
    printable = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
    click.echo(f"srunbook {command}: {printable}", err=True)


def emit(command: str, product: bytes) -> None:
    """Write to standard output; exit with status 1 if it does not take everything."""
    try:
        if sys.stdout is None:
            raise OSError(errno.EBADF, "it is closed")
        click.echo(product, nl=False)
    except BrokenPipeError:
        raise  # click ends quietly
    except OSError as error:
        say(command, f"standard output: {error.strerror}; the script was not written whole")
        with contextlib.suppress(OSError, AttributeError):
            sys.stdout.close()  # or its rest is tried again at the end
        sys.exit(1)
