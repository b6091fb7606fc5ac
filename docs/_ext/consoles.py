"""What may be told of a one-line command on a page without running it: its options, and the files that it names."""

from __future__ import annotations

import importlib
import re
import shlex
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


def wrong_command(text: str, root: Path, folders: Sequence[str], commands: Mapping[str, str]) -> str | None:
    """Say what is wrong with a command, as far as it can be told.

    Args:
        text: The command, with or without the prompt.
        root: Root of the repository.
        folders: Its folders: a command that names a file in one of them means a file that exists.
        commands: The commands whose options are known, each as `module:object` of its click command.

    Returns:
        None where nothing is known to be wrong.
    """
    try:
        words = shlex.split(text.strip().removeprefix("$ ").replace("\\\n", ""))
    except ValueError as error:
        return str(error)
    for word in words:
        if word.split("/")[0] in folders and "/" in word and not (root / word).exists():
            return f"there is no {word}"
    while words and (words[0] == "sudo" or re.fullmatch(r"\w+=.*", words[0])):
        words = words[1:]
    if not words or words[0] not in commands:
        return None
    return wrong_options(words[0], click_command(commands[words[0]]), words[1:])


def click_command(place: str) -> click.Command:
    """Import a click command from its place, `module:object`."""
    module, _, name = place.partition(":")
    command: click.Command = getattr(importlib.import_module(module), name)
    return command


def wrong_options(name: str | None, command: click.Command, words: list[str]) -> str | None:
    """Say what a command would not take of its arguments; nothing is run."""
    context = click.Context(command, info_name=name, **command.context_settings)
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
