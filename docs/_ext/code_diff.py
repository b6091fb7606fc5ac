"""The directive `code-diff`: a file as it differs from an earlier one, with the whole file below.

    ```{code-diff} examples/torchrun/ddp.py
    :from: examples/torchrun/one_gpu.py
    ```

Added lines are marked, removed ones are shown in their place, and long runs of unchanged lines shrink to a note. The
copy button takes the whole new file, because its text is what the block holds.
"""

from __future__ import annotations

import html
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, ClassVar

from code_file import INCLUDED, caption
from docutils import nodes
from docutils.parsers.rst import directives
from repository import FileError, RepositoryDirective, find, language, root

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sphinx.application import Sphinx
    from sphinx.writers.html5 import HTML5Translator

CONTEXT = 3
"""Unchanged lines that stay visible on each side of a change."""

SHORTEST_GAP = 4
"""Hide unchanged lines only where at least so many of them would go."""


class diff_block(nodes.literal_block):  # type: ignore[misc]  # noqa: N801 - docutils names nodes so
    """The text of the new file; `before` is that of the old one."""


class disclosure(nodes.container):  # type: ignore[misc]  # noqa: N801
    """Content that one click opens; `summary` says what it is."""


def compare(before: list[str], after: list[str]) -> Iterator[tuple[str, int]]:
    """Yield the lines of two files in reading order.

    Yields:
        A mark and a line's index: `-` and its index in `before`, `+` or ` ` (unchanged) and its index in `after`.

    >>> list(compare(["a", "b"], ["a", "c"]))
    [(' ', 0), ('-', 1), ('+', 1)]
    """
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for kind, first, last, start, end in matcher.get_opcodes():
        if kind == "equal":
            yield from ((" ", index) for index in range(start, end))
        else:
            yield from (("-", index) for index in range(first, last))
            yield from (("+", index) for index in range(start, end))


def counted(before: list[str], after: list[str]) -> tuple[int, int]:
    """Count the lines added and removed, blank ones aside.

    >>> counted(["a", "b"], ["a", "", "c", "d"])
    (2, 1)
    """
    marks = list(compare(before, after))
    added = sum(mark == "+" and bool(after[index].strip()) for mark, index in marks)
    removed = sum(mark == "-" and bool(before[index].strip()) for mark, index in marks)
    return added, removed


def hidden(marks: str) -> list[tuple[int, int]]:
    """Return the runs of unchanged lines to hide, as positions from and up to.

    >>> hidden("+" + " " * 12 + "-")
    [(4, 10)]
    >>> hidden(" " * 9 + "+")
    [(0, 6)]
    """
    runs, start = [], 0
    while start < len(marks):
        end = start
        while end < len(marks) and marks[end] == " ":
            end += 1
        first = start + CONTEXT if start else 0
        last = end - CONTEXT if end < len(marks) else end
        if last - first >= SHORTEST_GAP:
            runs.append((first, last))
        start = end + 1
    return runs


class CodeDiff(RepositoryDirective):
    """Shows a file as it differs from the one that `from` names."""

    option_spec: ClassVar = {"from": directives.unchanged_required}

    def build(self, path: Path) -> Iterator[nodes.Node]:
        """Build caption, difference and the whole file."""
        if "from" not in self.options:
            raise FileError("name the earlier file: `:from: examples/torchrun/one_gpu.py`")
        earlier = find(self.env, self.options["from"])
        self.env.note_dependency(str(earlier))
        before, after = earlier.read_text(encoding="utf-8"), path.read_text(encoding="utf-8")
        if before == after:
            raise FileError(f"{path.name} is {earlier.name}, byte for byte: there is no difference to show")

        name = path.relative_to(root(self.env)).as_posix()
        INCLUDED.add(self.env, name)
        INCLUDED.add(self.env, earlier.relative_to(root(self.env)).as_posix())
        added, removed = counted(before.splitlines(), after.splitlines())
        box = nodes.container(classes=["code-file", "code-diff"], is_div=True)
        box += caption(self.env, path, name, f", from {earlier.name}: +{added} \N{MINUS SIGN}{removed} lines")
        block = diff_block(after, after, language=language(path), real_file=name, before=before)
        self.set_source_info(block)
        box += block
        whole = disclosure(summary=f"The whole file {path.name}", classes=["code-diff-whole"])
        whole += nodes.literal_block(after, after, language=language(path), real_file=name)
        box += whole
        box += earlier_file(self, earlier, before)
        yield box


def earlier_file(directive: CodeDiff, path: Path, text: str) -> nodes.Node:
    """Make the earlier file, with its name and a download, for one click to open."""
    name = path.relative_to(root(directive.env)).as_posix()
    shown = nodes.container(classes=["code-file"], is_div=True)
    shown += caption(directive.env, path, name)
    shown += nodes.literal_block(text, text, language=language(path), real_file=name)
    closed = disclosure(summary=f"The earlier file {path.name}", classes=["code-diff-whole"])
    closed += shown
    return closed


def coloured(writer: HTML5Translator, node: diff_block, text: str) -> list[str]:
    """Return the lines of a text as HTML with its syntax coloured."""
    block = writer.highlighter.highlight_block(text, node["language"], location=node)
    inner = block.partition("<span></span>")[2].rpartition("</pre>")[0]
    return inner.rstrip("\n").split("\n")


def visit_diff_block(writer: HTML5Translator, node: diff_block) -> None:
    """Write the lines: `ins` is added, `del` removed; what is hidden is still copied."""
    before, after = coloured(writer, node, node["before"]), coloured(writer, node, node.rawsource)
    lines = list(compare(node["before"].splitlines(), node.rawsource.splitlines()))
    starts = dict(hidden("".join(mark for mark, _ in lines)))
    ends = set(starts.values())
    parts = [f'<div class="highlight-{node["language"]} notranslate"><div class="highlight"><pre><span></span>']
    for position, (mark, index) in enumerate(lines):
        if position in starts:
            count = starts[position] - position
            parts.append(f'<span class="diff-gap">{count} lines as before\n</span><span hidden>')
        line = (before if mark == "-" else after)[index] + "\n"
        parts.append({"+": f"<ins>{line}</ins>", "-": f"<del>{line}</del>", " ": line}[mark])
        if position + 1 in ends:
            parts.append("</span>")
    writer.body.append("".join(parts) + "</pre></div></div>\n")
    raise nodes.SkipNode


def visit_disclosure(writer: HTML5Translator, node: disclosure) -> None:
    """Open a `details` element."""
    writer.body.append(writer.starttag(node, "details"))
    writer.body.append(f"<summary>{html.escape(node['summary'])}</summary>\n")


def depart_disclosure(writer: HTML5Translator, node: disclosure) -> None:  # noqa: ARG001 - Sphinx gives both
    """Close it."""
    writer.body.append("</details>\n")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive and its nodes."""
    app.setup_extension("code_file")
    app.add_directive("code-diff", CodeDiff)
    app.add_node(diff_block, html=(visit_diff_block, None))
    app.add_node(disclosure, html=(visit_disclosure, depart_disclosure))
    return {"parallel_read_safe": False, "parallel_write_safe": True}
