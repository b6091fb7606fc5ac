"""Evidence of what the examples run: the programs among the arguments of the processes that each of them starts.

That an example mentions a program proves nothing. What counts is an argument of `srunbook.simulate.run`, or of a
process of the example's own, that is a file below examples/; and the modules beside it that such a file imports.
"""

from __future__ import annotations

import ast
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from srunbook import simulate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Started = dict[Path, set[Path]]
"""Files that each example started, by the example."""

_watching: list[tuple[Path, Started]] = []
_hooked: list[bool] = []


def note(arguments: Iterable[Any], folder: Any = None) -> None:
    """Note those arguments of a process that are files below examples/, for the example that runs now."""
    for examples, started in _watching:
        driver = Path(sys.argv[0])
        for argument in arguments:
            if isinstance(argument, str | os.PathLike):
                path = Path(os.path.normpath(Path(folder or Path.cwd(), os.fspath(argument))))
                if path.is_relative_to(examples) and path.is_file():
                    started.setdefault(driver, set()).add(path)


def listen(event: str, arguments: tuple[Any, ...]) -> None:
    """Hear of every process that Python starts by itself."""
    if event == "subprocess.Popen" and _watching:
        _, command, folder, _ = arguments
        note([command] if isinstance(command, str | os.PathLike) else command, folder)


@contextmanager
def watching(examples: Path) -> Iterator[Started]:
    """Watch, within its block, what examples start.

    Args:
        examples: The folder of all examples.
    """
    if not _hooked:
        sys.addaudithook(listen)  # it stays for good
        _hooked.append(True)
    started: Started = {}
    original = simulate.run

    def run(argv: Any, *arguments: Any, **options: Any) -> Any:
        note(argv)
        return original(argv, *arguments, **options)

    _watching.append((examples, started))
    setattr(simulate, "run", run)  # noqa: B010 - mypy takes it for a type
    try:
        yield started
    finally:
        setattr(simulate, "run", original)  # noqa: B010
        _watching.pop()


def with_imports(programs: Iterable[Path]) -> set[Path]:
    """Return the programs, and the modules beside them that they import, directly or not."""
    found: set[Path] = set()
    waiting = list(programs)
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        if path.suffix == ".py":
            waiting += imports(path)
    return found


def imports(program: Path) -> list[Path]:
    """Return the modules beside a program that it imports; what a comment or a docstring says does not count."""
    names = set()
    try:
        tree = ast.parse(program.read_text(encoding="utf-8"))
    except SyntaxError:
        return []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return [path for name in sorted(names) if (path := program.with_name(f"{name}.py")).is_file()]
