"""Writes what the page's program needs to adapt job scripts, so that its JavaScript need not parse bash.

`_static/adapt/rules.json` has the rules, and `_static/adapt/PATH.json` is about the script PATH of the repository: all
in `slurm/`, and those that pages show. A page fetches them only for a reader who has said what the cluster is like.
Offsets count the UTF-16 units of the text, as JavaScript does.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from code_file import INCLUDED
from repository import after_build, noted, root

from srunbook import generate, sites
from srunbook._files import write_whole
from srunbook.adapt.configuration import pattern, rules
from srunbook.generate.layers import OTHER_WORDS
from srunbook.script import Command, Option, ScriptError, Shell, ShellWord, Word, parse, read_shell

if TYPE_CHECKING:
    from collections.abc import Callable

    from sphinx.application import Sphinx


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
        return {"text": one.text, "start": at(one.start), "end": at(one.end), "line": one.line, "plain": one.plain}

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


def write_data(app: Sphinx) -> None:
    """Write the files."""
    repository = root(app.env)
    shown = {name for names in noted(app.env, INCLUDED).values() for name in names}
    shown |= {path.relative_to(repository).as_posix() for path in (repository / "slurm").rglob("*.sbatch")}
    folder = Path(app.outdir) / "_static" / "adapt"
    write_json(folder / "rules.json", known())
    for name in sorted(shown):
        if name.endswith(".sbatch"):
            write_json(folder / f"{name}.json", facts((repository / name).read_bytes()))


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a file of JSON, and only when it differs."""
    write_whole(path, json.dumps(content, ensure_ascii=False, separators=(",", ":")))


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the writing."""
    app.setup_extension("code_file")
    after_build(app, write_data)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
