"""How long is a program? Lines and tokens of code, without comments, docstrings and empty lines.

python count_code.py
"""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

PROGRAMS = ("my_svgd.py", "legacy_multinode.py")
LAYOUT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def docstring_lines(text: str) -> set[int]:
    """Return the numbers of the lines of docstrings."""
    lines: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node) is not None:
            lines.update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return lines


def count(text: str) -> tuple[int, int]:
    """Count the lines that hold code, and the tokens in them."""
    left_out = docstring_lines(text)
    tokens = [
        token
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in LAYOUT and token.start[0] not in left_out
    ]
    lines = {line for token in tokens for line in range(token.start[0], token.end[0] + 1)}
    return len(lines), len(tokens)


if __name__ == "__main__":
    for name in PROGRAMS:
        lines, tokens = count(Path(name).read_text(encoding="utf-8"))
        print(f"{name:<20} {lines:>4} lines {tokens:>5} tokens")
