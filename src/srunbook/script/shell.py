"""The commands and assignments of a script, from the syntax tree that tree-sitter's grammar for bash gives."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node, Tree

PLAIN = re.compile(r"[A-Za-z0-9_./:@%+,=-]+")
"""Words that mean themselves to bash."""

TOP = frozenset({"program", "redirected_statement", "declaration_command", "variable_assignments"})
"""What a command may lie in and still run exactly once, in the script's own shell."""

STEPS = frozenset({".", "cd", "conda", "ml", "module", "source"})
"""Commands that are no question: what follows one of them and `&&` is the next step."""


@dataclass(frozen=True)
class ShellWord:
    """A word of a command, as the script has it.

    Args:
        raw: Its text, with quotes.
        start: Offset of its first byte.
        end: Offset behind its last byte.
    """

    raw: str
    start: int
    end: int

    @property
    def literal(self) -> str | None:
        """What bash makes of it; None where something in it is expanded."""
        if PLAIN.fullmatch(self.raw):
            return self.raw
        quoted = re.fullmatch(r"'([^']*)'|\"([^\"$`\\]*)\"", self.raw)
        return (quoted[1] or quoted[2] or "") if quoted else None


@dataclass(frozen=True)
class Command:
    """A simple command.

    Args:
        words: Its name and its arguments.
        start: Offset of its first byte.
        end: Offset behind its last byte.
        line: Its first line, from 1.
        plain: Whether the script's own shell runs it exactly once: not in an if, a loop, a function or a pipe.
    """

    words: tuple[ShellWord, ...]
    start: int
    end: int
    line: int
    plain: bool

    @property
    def name(self) -> str | None:
        """Name of the command, where it is literal."""
        return self.words[0].literal if self.words else None


@dataclass(frozen=True)
class Assignment:
    """An assignment to a variable, also one that exports it.

    Args:
        name: The variable.
        value: What it gets.
        line: Its line, from 1.
        plain: As for `Command`.
    """

    name: str
    value: ShellWord
    line: int
    plain: bool


@dataclass(frozen=True)
class Shell:
    """What a script does.

    Args:
        commands: All simple commands, in their order.
        assignments: All assignments that are not for a single command.
        arrays: The words of each array.
        expansions: The name of each variable that is expanded, and the offset behind it: in `"$VENV/bin"`, of `/bin`.
        steps: The statements that are in no other one: where each begins, and the name of a simple command.
        problem: The first line that was not understood; None if all were.
    """

    commands: tuple[Command, ...]
    assignments: tuple[Assignment, ...]
    arrays: tuple[tuple[ShellWord, ...], ...]
    expansions: tuple[tuple[str, int], ...]
    steps: tuple[tuple[int, str | None], ...]
    problem: int | None


def read_shell(data: bytes) -> Shell:
    r"""Read the syntax of a script.

    Args:
        data: Its bytes.

    >>> shell = read_shell(b'VENV="$HOME/env"\nif true; then module load "cuda/12.4"; fi\n')
    >>> shell.assignments[0].value.raw, shell.commands[1].words[2].literal, shell.commands[1].plain
    ('"$HOME/env"', 'cuda/12.4', False)
    """
    tree = _tree(data)
    commands, assignments, arrays, expansions = [], [], [], []
    problem = None
    for node in _walk(tree.root_node):
        if node.is_error or node.is_missing:
            problem = problem or node.start_point[0] + 1
        elif node.type == "command":
            parts = (_word(part) for part in node.children if part.type not in ("variable_assignment", "file_redirect"))
            commands.append(
                Command(tuple(parts), node.start_byte, node.end_byte, node.start_point[0] + 1, _runs_once(node))
            )
        elif node.type in ("simple_expansion", "expansion"):
            expansions.append(((node.text or b"").decode("utf-8", "replace").strip("${}"), node.end_byte))
        elif node.type == "array":
            arrays.append(tuple(_word(part) for part in node.named_children if part.type != "comment"))
        elif node.type == "variable_assignment" and node.parent and node.parent.type != "command":
            name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
            if name and name.text and value:
                assignments.append(
                    Assignment(name.text.decode(), _word(value), node.start_point[0] + 1, _runs_once(node))
                )
    names = {command.start: command.name for command in commands}
    steps = [
        (node.start_byte, names.get(node.start_byte)) for node in tree.root_node.children if node.type != "comment"
    ]
    return Shell(tuple(commands), tuple(assignments), tuple(arrays), tuple(expansions), tuple(steps), problem)


def _tree(data: bytes) -> Tree:
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language())).parse(data)


def _walk(root: Node) -> Iterator[Node]:
    """Yield all nodes in the order of the text."""
    left = [root]
    while left:
        node = left.pop()
        yield node
        left += reversed(node.children)


def _word(node: Node) -> ShellWord:
    return ShellWord((node.text or b"").decode("utf-8", "surrogateescape"), node.start_byte, node.end_byte)


def _runs_once(node: Node) -> bool:
    above = node.parent
    while above and (above.type in TOP or (above.type == "list" and _is_next_step(above, node))):
        node, above = above, above.parent
    return above is None


def _is_next_step(steps: Node, node: Node) -> bool:
    """Tell whether a member of `a && b` runs as if it were on a line of its own."""
    if steps.children[0] == node:
        return True
    left, sign = steps.children[0], steps.children[1]
    while left.type == "list" and left.children[1].type == "&&":
        last = left.children[-1]
        if not (last.type == "command" and (last.text or b"").split(maxsplit=1)[0].decode() in STEPS):
            return False
        left = left.children[0]
    return sign.type == "&&" and left.type == "command" and (left.text or b"").split(maxsplit=1)[0].decode() in STEPS
