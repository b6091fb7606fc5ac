"""The directive `code-diff`: a file as it differs from an earlier one, with the whole file below.

    ```{code-diff} examples/torchrun/ddp.py
    :from: examples/torchrun/one_gpu.py

    device = ... set_device
    DistributedSampler(dataset)
    ```

Long runs of unchanged lines shrink to a note. The copy button takes the whole new file: the text of the block.

A page that explains each change beside its reason shows parts. Each line of the content is a range of changed lines,
from the first that contains one text to the last that contains the other, or the one change that contains a text. The
parts of a page show every changed line once, or the build fails.
"""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from code_file import INCLUDED, caption
from docutils import nodes
from docutils.parsers.rst import directives
from repository import LANGUAGES, FileError, RepositoryDirective, disclosure, download, find, note
from sphinx.util import logging

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sphinx.application import Sphinx
    from sphinx.writers.html5 import HTML5Translator

logger = logging.getLogger(__name__)

CONTEXT = 3
"""Unchanged lines that stay visible on each side of a change."""

SHORTEST_GAP = 4
"""Hide unchanged lines only where at least so many of them would go."""


class Line(NamedTuple):
    """A line of a difference: `-` removed, `+` added, or with a space in both files.

    `place` is its index in the earlier file if it is removed, else in the later one.
    """

    mark: str
    place: int
    text: str


def compare(before: str, after: str) -> list[Line]:
    """Return the lines of two files in reading order."""
    old, new = before.splitlines(), after.splitlines()
    lines: list[Line] = []
    for kind, first, last, start, end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind != "equal":
            lines += [Line("-", index, old[index]) for index in range(first, last)]
        lines += [Line(" " if kind == "equal" else "+", index, new[index]) for index in range(start, end)]
    return lines


def choose(lines: list[Line], wanted: str) -> list[int]:
    """Return the positions of the changed lines of a range.

    `TEXT ... TEXT` means those from the first with one text to the last with the other; `TEXT` means the run of changed
    lines around the first that contains it.
    """
    first, dots, last = (text.strip() for text in wanted.partition(" ... "))
    changed = [position for position, line in enumerate(lines) if line.mark != " "]
    places = {text: [position for position in changed if text in lines[position].text] for text in (first, last)}
    for text in filter(None, (first, last)):
        if not places[text]:
            raise FileError(f"no changed line contains {text!r}")
    start, end = places[first][0], places[last][-1] if dots else places[first][0]
    if end < start:
        raise FileError(f"the last changed line with {last!r} comes before the first with {first!r}")
    if not dots:
        while start - 1 in changed:
            start -= 1
        while end + 1 in changed:
            end += 1
    return [position for position in changed if start <= position <= end]


def around(lines: list[Line], chosen: list[int]) -> list[int]:
    """Return the positions to show of a part: its changed lines and the unchanged ones next to them, if not blank."""
    near = {position + step for position in chosen for step in (-1, 1)} & {*range(len(lines))}
    return sorted({*chosen} | {place for place in near if lines[place].mark == " " and lines[place].text.strip()})


class diff_block(nodes.literal_block):  # type: ignore[misc]  # noqa: N801 - docutils names nodes so
    """The text of the new file or of a part of it.

    `before` and `after` are both files, whole; `chosen` has the positions of the changed lines of a part.
    """


class CodeDiff(RepositoryDirective):
    """Shows a file as it differs from the one that `from` names, or a part of the difference."""

    has_content = True
    needed = ("from",)
    option_spec: ClassVar = {"from": directives.unchanged_required}

    def build(self, path: Path) -> Iterator[nodes.Node]:
        """Build caption, difference and the whole file."""
        name, earlier_name = self.arguments[0], self.options["from"]
        earlier = find(self.env, earlier_name)
        self.env.note_dependency(str(earlier))
        before, after = earlier.read_text(encoding="utf-8"), path.read_text(encoding="utf-8")
        if before == after:
            raise FileError(f"{path.name} is {earlier.name}, byte for byte: there is no difference to show")
        note(self.env, INCLUDED, name)
        note(self.env, INCLUDED, earlier_name)
        lines = compare(before, after)
        chosen = sorted(position for wanted in filter(str.strip, self.content) for position in choose(lines, wanted))
        shown = [lines[position] for position in around(lines, chosen)]
        text = "".join(f"{line.text}\n" for line in shown if line.mark != "-") if chosen else after
        added, removed = (sum(line.mark == mark and bool(line.text.strip()) for line in lines) for mark in "+-")
        language = LANGUAGES.get(path.suffix, "text")
        block = diff_block(text, text, language=language, real_file=name, before=before, after=after)
        block["earlier"], block["chosen"] = earlier.name, chosen
        self.set_source_info(block)
        new = nodes.literal_block(after, after, language=language, real_file=name)
        since = (", from ", download(self.env, earlier, earlier.name), f": +{added} \N{MINUS SIGN}{removed} lines")
        yield nodes.container(
            "",
            caption(self.env, name, *since),
            block,
            disclosure("", new, summary=f"The whole file {path.name}", classes=["code-diff-whole"]),
            classes=["code-file", "code-diff"],
            is_div=True,
        )


def join_parts(_app: Sphinx, doctree: nodes.document) -> None:
    """Check the parts of each difference on a page; leave one caption, and the whole file below the last part."""
    pairs: dict[tuple[str, str], list[diff_block]] = {}
    for block in doctree.findall(diff_block):
        pairs.setdefault((block["real_file"], block["earlier"]), []).append(block)
    for blocks in pairs.values():
        if any(block["chosen"] for block in blocks):
            check_parts(blocks)
            for block in blocks[1:]:
                block.parent.remove(block.parent[0])  # the caption
            for block in blocks[:-1]:
                del block.parent[block.parent.index(block) + 1 :]  # the whole file


def check_parts(blocks: list[diff_block]) -> None:
    """Warn of each changed line that is shown nowhere, or more than once."""
    lines = compare(blocks[0]["before"], blocks[0]["after"])
    everything = [position for position, line in enumerate(lines) if line.mark != " "]
    shown = [position for block in blocks for position in block["chosen"] or everything]
    for position in everything:
        line, times = lines[position], shown.count(position)
        if times != 1 and line.text.strip():
            problem = f"show this changed line {times} times, not once: {line.mark} {line.text}"
            name = blocks[0]["real_file"]
            logger.warning("the parts of %s %s", name, problem, location=blocks[0], type="code-diff")


def colour(writer: HTML5Translator, node: diff_block, text: str) -> list[str]:
    """Return the lines of a text as HTML with its syntax coloured."""
    block = writer.highlighter.highlight_block(text, node["language"], location=node)
    inner = block.partition("<span></span>")[2].rpartition("</pre>")[0]
    return inner.rstrip("\n").split("\n")


def visit_diff_block(writer: HTML5Translator, node: diff_block) -> None:
    """Write the lines: `ins` is added, `del` removed; what a whole file hides is still copied."""
    coloured = {"-": colour(writer, node, node["before"]), "+": colour(writer, node, node["after"])}
    coloured[" "] = coloured["+"]
    lines = compare(node["before"], node["after"])
    tags = {"+": "<ins>{}\n</ins>", "-": "<del>{}\n</del>", " ": "{}\n"}
    markup = [tags[line.mark].format(coloured[line.mark][line.place]) for line in lines]
    chosen = node["chosen"]
    inner = part(markup, around(lines, chosen)) if chosen else whole(markup, "".join(line.mark for line in lines))
    opened = f'<div class="highlight-{node["language"]} notranslate"><div class="highlight"><pre><span></span>'
    writer.body.append(f"{opened}{''.join(inner)}</pre></div></div>\n")
    raise nodes.SkipNode


def whole(markup: list[str], marks: str) -> Iterator[str]:
    """Write all lines, with long runs of unchanged ones behind a note."""
    for run in re.finditer(" +|[-+]+", marks):
        lines = markup[run.start() : run.end()]
        first = CONTEXT if run.start() else 0
        last = len(lines) - (CONTEXT if run.end() < len(marks) else 0)
        if run[0].isspace() and last - first >= SHORTEST_GAP:
            gap = f'<span class="diff-gap">{last - first} lines as before\n</span><span hidden>'
            lines[first:last] = [gap, *lines[first:last], "</span>"]
        yield from lines


def part(markup: list[str], shown: list[int]) -> Iterator[str]:
    """Write some lines, with a note between those that do not follow each other."""
    for before, position in zip([shown[0] - 1, *shown], shown, strict=False):
        if position != before + 1:
            yield '<span class="diff-gap">\N{MIDLINE HORIZONTAL ELLIPSIS}\n</span>'
        yield markup[position]


def setup(app: Sphinx) -> dict[str, int]:
    """Register the directive and its nodes."""
    app.setup_extension("code_file")
    app.add_directive("code-diff", CodeDiff)
    app.connect("doctree-read", join_parts)
    app.add_node(diff_block, html=(visit_diff_block, None))
    return {"env_version": 3}  # of the nodes in doctrees kept from an earlier build
