"""Which lines of a program about a failure matter: what it prints itself, and the message of its entry."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from recordings.library_lines import LABEL
from srunbook.explain.entries import compiled, expression, load_entries, plain


def own_words(program: Path) -> Iterator[str]:
    """Yield the words in a program's calls of `print`."""
    for call in ast.walk(ast.parse(program.read_text(encoding="utf-8"))):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "print":
            for node in ast.walk(call):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.search(r"\w{3}", node.value):
                    yield node.value.strip()


def telling(program: Path, slug: str) -> Callable[[str], bool]:
    """Return what finds the lines that a program prints itself, and the messages of its entry."""
    entry = load_entries().get(slug)
    own = [rf"^{LABEL}(?!\s*(File|print|raise)\b).*{re.escape(plain(words))}" for words in own_words(program)]
    pattern = compiled("|".join([*own, *map(expression, entry.messages if entry else ())]) or ".")
    return lambda line: pattern.search(plain(line)) is not None
