"""The directive `code-diff`: a file as it differs from an earlier one, with the whole file below.

    ```{code-diff} examples/torchrun/ddp.py
    :from: examples/torchrun/one_gpu.py
    ```

Added lines are marked, removed ones are shown in their place, and long runs of unchanged lines shrink to a note. The
copy button takes the whole new file, because its text is what the block holds.

A page that explains each change beside its reason takes the difference apart; each line of the content is a range of
changed lines, from the first that contains one text to the last that contains the other, or the one change that
contains a text:

    ```{code-diff} examples/torchrun/ddp.py
    :from: examples/torchrun/one_gpu.py

    device = ... set_device
    DistributedSampler(dataset)
    ```

The parts of a page show every changed line once, or the build fails. Both files, whole, follow the last of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from code_file import INCLUDED, caption
from diff_lines import around, choose, compare, counted, hidden, texts_of
from disclosure import disclosure
from docutils import nodes
from docutils.parsers.rst import directives
from repository import FileError, RepositoryDirective, find, language, root
from sphinx.transforms import SphinxTransform
from sphinx.util import logging

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from sphinx.application import Sphinx
    from sphinx.writers.html5 import HTML5Translator

logger = logging.getLogger(__name__)


class diff_block(nodes.literal_block):  # type: ignore[misc]  # noqa: N801 - docutils names nodes so
    """The text of the new file or of a part of it.

    `before` and `after` are both files, whole; `chosen` has the positions of the changed lines of a part.
    """


class CodeDiff(RepositoryDirective):
    """Shows a file as it differs from the one that `from` names, or a part of the difference."""

    has_content = True
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
        lines = texts_of(before.splitlines(), after.splitlines())
        chosen = sorted(position for wanted in filter(str.strip, self.content) for position in choose(lines, wanted))
        shown = [lines[position] for position in around(lines, chosen)]
        text = "".join(f"{line}\n" for mark, line in shown if mark != "-") if chosen else after
        box = nodes.container(classes=["code-file", "code-diff"], is_div=True)
        box += caption(self.env, path, name, f", from {earlier.name}: +{added} \N{MINUS SIGN}{removed} lines")
        block = diff_block(text, text, language=language(path), real_file=name, before=before, after=after)
        block["earlier"], block["chosen"] = earlier.name, chosen
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


class PartsOfDiff(SphinxTransform):
    """Checks that the parts of a page show each changed line once; leaves one caption and one pair of whole files."""

    default_priority = 400

    def apply(self, **_: object) -> None:
        """Treat the blocks of each pair of files together."""
        pairs: dict[tuple[str, str], list[diff_block]] = {}
        for block in self.document.findall(diff_block):
            pairs.setdefault((block["real_file"], block["earlier"]), []).append(block)
        for blocks in pairs.values():
            if any(block["chosen"] for block in blocks):
                self.check(blocks)
                for block in blocks[1:]:
                    block.parent.remove(block.parent[0])  # the caption
                for block in blocks[:-1]:
                    del block.parent[block.parent.index(block) + 1 :]  # the whole files

    @staticmethod
    def check(blocks: list[diff_block]) -> None:
        """Warn of each changed line that is shown nowhere, or more than once."""
        lines = texts_of(blocks[0]["before"].splitlines(), blocks[0]["after"].splitlines())
        everything = [position for position, (mark, _) in enumerate(lines) if mark != " "]
        shown = [position for block in blocks for position in block["chosen"] or everything]
        for position in everything:
            mark, text = lines[position]
            times = shown.count(position)
            if times != 1 and text.strip():
                logger.warning(
                    "the parts of %s show this changed line %d times, not once: %s",
                    blocks[0]["real_file"],
                    times,
                    f"{mark} {text}",
                    location=blocks[0],
                    type="code-diff",
                )


def coloured(writer: HTML5Translator, node: diff_block, text: str) -> list[str]:
    """Return the lines of a text as HTML with its syntax coloured."""
    block = writer.highlighter.highlight_block(text, node["language"], location=node)
    inner = block.partition("<span></span>")[2].rpartition("</pre>")[0]
    return inner.rstrip("\n").split("\n")


def visit_diff_block(writer: HTML5Translator, node: diff_block) -> None:
    """Write the lines: `ins` is added, `del` removed; what a whole file hides is still copied."""
    before, after = coloured(writer, node, node["before"]), coloured(writer, node, node["after"])
    compared = list(compare(node["before"].splitlines(), node["after"].splitlines()))

    def markup(position: int) -> str:
        mark, index = compared[position]
        line = (before if mark == "-" else after)[index] + "\n"
        return {"+": f"<ins>{line}</ins>", "-": f"<del>{line}</del>", " ": line}[mark]

    if node["chosen"]:
        lines = texts_of(node["before"].splitlines(), node["after"].splitlines())
        parts = part(around(lines, node["chosen"]), markup)
    else:
        parts = whole("".join(mark for mark, _ in compared), markup)
    inner = "".join(parts)
    opened = f'<div class="highlight-{node["language"]} notranslate"><div class="highlight"><pre><span></span>'
    writer.body.append(f"{opened}{inner}</pre></div></div>\n")
    raise nodes.SkipNode


def whole(marks: str, markup: Callable[[int], str]) -> Iterator[str]:
    """Write all lines, with long runs of unchanged ones behind a note."""
    starts = dict(hidden(marks))
    ends = set(starts.values())
    for position in range(len(marks)):
        if position in starts:
            count = starts[position] - position
            yield f'<span class="diff-gap">{count} lines as before\n</span><span hidden>'
        yield markup(position)
        if position + 1 in ends:
            yield "</span>"


def part(shown: list[int], markup: Callable[[int], str]) -> Iterator[str]:
    """Write some lines, with a note between those that do not follow each other."""
    for before, position in zip([shown[0] - 1, *shown], shown, strict=False):
        if position != before + 1:
            yield '<span class="diff-gap">\N{MIDLINE HORIZONTAL ELLIPSIS}\n</span>'
        yield markup(position)


def setup(app: Sphinx) -> dict[str, bool | int]:
    """Register the directive and its nodes."""
    app.setup_extension("code_file")
    app.setup_extension("disclosure")
    app.add_directive("code-diff", CodeDiff)
    app.add_transform(PartsOfDiff)
    app.add_node(diff_block, html=(visit_diff_block, None))
    version = 2  # of the nodes in doctrees kept from an earlier build
    return {"parallel_read_safe": False, "parallel_write_safe": True, "env_version": version}
