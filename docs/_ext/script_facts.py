"""What `srunbook.script` reads in a job script, as JSON for the page, so that its JavaScript need not parse bash.

Offsets count the UTF-16 units of the text, as JavaScript does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from srunbook import generate, sites
from srunbook.adapt._rules import pattern, rules
from srunbook.generate._layers import OTHER_WORDS
from srunbook.script import Command, Option, ScriptError, Shell, ShellWord, Word, parse, read_shell

if TYPE_CHECKING:
    from collections.abc import Callable


def known() -> dict[str, Any]:
    """Return what both engines go by: the rules and their texts, the schema of a configuration, and the known sites."""
    made = generate.rules()
    return {
        "rules": {**rules(), "keywords": made["keywords"]},
        "schema": generate.schema()["properties"],
        "sites": {name: dict(sites.read(name)) for name in sites.names()},
        "other_words": OTHER_WORDS,
        "control": made["control"],
        "contradictions": made["contradictions"],
    }


def facts(data: bytes) -> dict[str, Any]:
    """Return what is known of a script.

    Args:
        data: A script in UTF-8.

    Returns:
        Its text, and either the error that its directives have or what they and the commands say.
    """
    text = data.decode("utf-8")
    try:
        script = parse(data)
    except ScriptError as error:
        return {"text": text, "error": {"line": error.line, "problem": error.problem}}
    at = places(data)
    bash = pattern(rules()["shells"]).search(text.partition("\n")[0].rstrip()) is not None
    return {
        "text": text,
        "error": None,
        "bash": bash,
        "lines": [{"number": one.number, "start": at(one.start), "words": len(one.words)} for one in script.lines],
        "options": [option_facts(option, at) for option in script.options],
        "shell": shell_facts(read_shell(data if bash else b""), at),
    }


def places(data: bytes) -> Callable[[int], int]:
    """Return the function that turns an offset in bytes into one in UTF-16 units."""
    if data.isascii():
        return lambda offset: offset
    return lambda offset: units(data[:offset].decode("utf-8"))


def units(text: str) -> int:
    """Count the UTF-16 units of a text."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def option_facts(option: Option, at: Callable[[int], int]) -> dict[str, Any]:
    """Return an option."""

    def word(one: Word | None) -> dict[str, Any] | None:
        if one is None:
            return None
        return {
            "text": one.text,
            "start": at(one.start),
            "end": at(one.end),
            "line": one.line,
            "plain": one.plain,
        }

    return {
        "name": option.name,
        "value": option.value,
        "word": word(option.word),
        "value_word": word(option.value_word),
        "at": None if option.at is None else units(option.word.text[: option.at]),
        "alone": option.alone,
    }


def shell_facts(shell: Shell, at: Callable[[int], int]) -> dict[str, Any]:
    """Return what the commands of a script say."""

    def span(word: ShellWord | Command) -> list[int]:
        return [at(word.start), at(word.end)]

    return {
        "commands": [
            {
                "words": [span(word) for word in one.words],
                "start": at(one.start),
                "end": at(one.end),
                "line": one.line,
                "plain": one.plain,
            }
            for one in shell.commands
        ],
        "assignments": [
            {"name": one.name, "value": span(one.value), "line": one.line, "plain": one.plain}
            for one in shell.assignments
        ],
        "arrays": [[span(word) for word in one] for one in shell.arrays],
        "expansions": [[name, at(end)] for name, end in shell.expansions],
        "steps": [[at(start), name] for start, name in shell.steps],
        "problem": shell.problem,
    }
