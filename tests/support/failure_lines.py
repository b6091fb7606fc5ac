"""Which lines of a program about a failure matter: what it prints itself, and the message of its entry."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from recordings.comparing import Mask
from recordings.library_lines import LABEL
from srunbook.explain.entries import compiled, expression, load_entries, plain


def own_words(program: Path) -> Iterator[str]:
    """Yield the words in a program's calls of `print`, and in what it asks of `faulthandler`."""
    for call in ast.walk(ast.parse(program.read_text(encoding="utf-8"))):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "print":
            for node in ast.walk(call):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.search(r"\w{3}", node.value):
                    yield node.value.strip()
        elif isinstance(call, ast.Call) and ast.unparse(call.func) == "faulthandler.dump_traceback_later":
            yield "Timeout ("


def telling(program: Path, slug: str) -> tuple[Callable[[str], bool], list[Mask]]:
    """Return what finds the lines that a program prints itself, and the messages of its entry; and masks for these."""
    entry = load_entries().get(slug)
    messages = [expression(form) for form in entry.messages] if entry else []
    own = [rf"^{LABEL}(?!\s*(File|print|raise)\b).*{re.escape(plain(words))}" for words in own_words(program)]
    pattern = compiled("|".join([*own, *messages]) or ".")
    masks = [Mask(f".*({message}).*", r"\1", "a library says more in the same line") for message in messages]
    return lambda line: pattern.search(plain(line)) is not None, masks
