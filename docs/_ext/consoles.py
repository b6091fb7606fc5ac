"""What may be told of a one-line command on a page without running it: its options, and the files that it names."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

FOLDERS = ("bench", "docs", "examples", "scripts", "slurm", "src", "tests")
"""Folders of the repository: a command that names a file in one of them means a file that is there."""


def wrong_command(root: Path, text: str) -> str | None:
    """Says what is wrong with a command, as far as it can be told.

    Args:
        root: Root of the repository.
        text: The command, with or without the prompt.

    Returns:
        None where nothing is known to be wrong.
    """
    try:
        words = shlex.split(text.strip().removeprefix("$ "))
    except ValueError as error:
        return str(error)
    for word in words:
        if word.split("/")[0] in FOLDERS and "/" in word and not (root / word).exists():
            return f"there is no {word}"
    while words and (words[0] == "sudo" or re.fullmatch(r"\w+=.*", words[0])):
        words = words[1:]
    return wrong_options(words[1:]) if words[:1] == ["srunbook"] else None


def wrong_options(words: list[str]) -> str | None:
    """Says what the command `srunbook` would not take of its arguments; nothing is run."""
    import click

    from srunbook.cli import main

    command: click.Command = main
    context = click.Context(command, info_name="srunbook", **command.context_settings)
    try:
        while True:
            _, rest, _ = command.make_parser(context).parse_args(list(words))
            if not isinstance(command, click.Group) or not rest:
                return None
            name, found, words = command.resolve_command(context, rest)
            command = found or command
            context = click.Context(command, info_name=name, parent=context, **command.context_settings)
    except click.UsageError as error:
        return error.format_message()
