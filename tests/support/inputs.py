"""What a test depends on, as one hash: while it stays the same, a test that has passed needs no further run.

A test depends on its own code, on the published files that this code or its parameters name, on what these files name
and import in turn, on the parts of our library that the test or the files import, and on the versions of packages and
of Slurm. The helpers in tests/support count only for the files that they name: all tests share them, so the tests that
run every day see them fail.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import hashlib
import importlib.metadata
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

PUBLISHED = ("examples", "slurm", "scripts", "docs", "tests/simulation/foreign", "tests/cluster")
ENDINGS = (".py", ".sbatch", ".sh", ".yaml", ".json", ".csv", ".def", ".toml", ".txt", ".md", ".rst", ".npz", ".cfg")

PART = re.compile(r"\bsrunbook(?:[ .]| import )(\w+)")
"""A part of our library in a text: as a command, as a module, or in a program."""

LISTED = r"\b[A-Z][A-Z_]+\b[^\n]*\.r?glob\("
"""Code that lists a folder of the repository: a test with this and without cases depends on all published files."""

HARNESS = {"cluster", "simulate"}
"""Parts of the library that run published files for a test. They have tests of their own."""


class Statement(NamedTuple):
    """A statement at the top of a module: what it defines, the names and strings in it, what it imports, its text."""

    defines: set[str]
    words: set[str]
    strings: set[str]
    imports: list[tuple[str, str]]
    code: str
    shared: bool


def file_names(text: str) -> set[str]:
    """Return what looks like the name of a file in a text."""
    words = (word.rstrip(".") for word in re.split(r"[^\w./-]+", text))
    return {word for word in words if word.endswith(ENDINGS)}


def imported(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    """Yield a name and its module for each import among nodes: `c` and `a.b.c` for `from a.b import c`."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((alias.asname or alias.name.split(".")[0], alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)


def read_statement(node: ast.stmt, *, cases: bool) -> Statement:
    """Read a statement; of a test without the values of its parameters, unless its cases count."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef) and not cases:
        node = copy.copy(node)
        node.decorator_list = [mark for mark in node.decorator_list if ".parametrize(" not in ast.unparse(mark)]
    below = [*ast.walk(node)]
    docstrings = {id(child.value) for child in below if isinstance(child, ast.Expr)}
    texts = [child for child in below if isinstance(child, ast.Constant) and isinstance(child.value, str)]
    names = [child for child in below if isinstance(child, ast.Name)]
    words = {child.id for child in names} | {child.arg for child in below if isinstance(child, ast.arg)}
    imports, code = [*imported(below)], ast.unparse(node)
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        defines = {node.name}
    elif isinstance(node, ast.Import | ast.ImportFrom):
        defines = {name for name, _ in imports}
    else:
        defines = {child.id for child in names if isinstance(child.ctx, ast.Store)}
    shared = not defines or "pytestmark" in defines or bool(re.search("^@.*autouse=True", code, re.MULTILINE))
    strings = {child.value for child in texts if id(child) not in docstrings}
    return Statement(defines, words, strings, imports, code, shared)


def without_docstrings(source: bytes) -> str:
    """Return a module as Python reads it: without comments, and without strings that stand alone."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [part for part in body if not is_text(part)]  # type: ignore[attr-defined]
    return ast.dump(tree)


def is_text(node: ast.AST) -> bool:
    """Return whether a statement is a string alone."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


class Inputs:
    """The inputs of the tests of a repository.

    Args:
        root: Its folder.
        version: Returns the version of what is installed under an import's name, or None.
    """

    def __init__(self, root: Path, version: Callable[[str], str | None]) -> None:
        self.root, self.version = root, version
        self.library = root / "src" / "srunbook"
        files = [path.relative_to(root) for name in PUBLISHED for path in (root / name).rglob("*") if path.is_file()]
        self.published = sorted(
            path
            for path in files
            if path.parts[:2] != ("docs", "gallery") and not path.parent.name.startswith("_")
            if not path.name.startswith(("plot_", "test_")) and not path.name.endswith((".pyc", ".recording.json"))
        )
        self.by_name: dict[str, set[Path]] = {}
        self.folders: dict[str, set[Path]] = {}  # of guides and failures
        for path in self.published:
            for name in {path.name, path.stem if path.suffix in (".py", ".sbatch", ".sh") else path.name}:
                self.by_name.setdefault(name, set()).add(path)
            depth = 3 if path.parts[1] == "failures" else 2
            if path.parts[0] in ("examples", "slurm") and len(path.parts) > depth:
                self.folders.setdefault(path.parts[depth - 1].replace("-", "_"), set()).add(Path(*path.parts[:depth]))
        for method in ("statements", "digest", "needed", "room", "modules", "code"):
            setattr(self, method, cache(getattr(self, method)))

    def of(self, module: Path, test: str, case: str = "", more: Iterable[str] = ()) -> str:
        """Return the hash of all that a test depends on: a case is the values of its parameters, as text."""
        code = self.code(module, test, cases=" at 0x" in case or "<function" in case)
        values = {*re.findall(r"[^\s'\"(),=\[\]{}]+", case)}
        files = self.resolve(values, code.strings) or self.inside(values)
        if not files and re.search(LISTED, code.code):
            files = {*self.published}
        files = files or self.resolve(code.strings, code.strings) or self.inside(code.strings)
        every = sorted({path for file in files for path in self.needed(file)})
        theirs = {name for path in every for name in self.modules(path)}
        modules = {target for _, target in code.imports} | theirs
        modules |= {f"srunbook.{word}" for text in code.strings for word in PART.findall(text)}
        if any(text.endswith("srunbook") for text in code.strings):  # ["srunbook", "verify", ...]
            modules |= {f"srunbook.{text}" for text in code.strings}
        if any(len(self.folders.get(path.parts[1], ())) > 1 or path.parts[1] == "failures" for path in files):
            modules = {name for name in modules if name in theirs or name.split(".")[:2][-1] not in HARNESS}
        sources = sorted({path for name in modules if "srunbook." in name for path in self.room(name.split(".")[1])})
        modules |= {name for path in sources for name in self.modules(path)}
        versions = {name: self.version(name) for name in sorted({name.split(".")[0] for name in modules})}
        parts = [code.code, case, *more, f"{sys.version_info[0]}.{sys.version_info[1]}"]
        parts += [f"{path.as_posix()} {self.digest(self.root / path)}" for path in [*every, *sources]]
        parts += [f"{name} {version}" for name, version in versions.items() if version]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]

    def digest(self, path: Path) -> str:
        """Return the hash of a file; of a module of our library, without comments and docstrings, unless it's help."""
        content = path.read_bytes()
        if path.suffix == ".py" and path.is_relative_to(self.library) and "cli" not in path.parts:
            with contextlib.suppress(SyntaxError):  # then every byte counts
                content = without_docstrings(content).encode()
        return hashlib.sha256(content).hexdigest()

    def statements(self, module: Path, cases: bool) -> list[Statement]:
        """Return the statements of a module."""
        return [read_statement(node, cases=cases) for node in ast.parse(module.read_text(encoding="utf-8")).body]

    def code(self, module: Path, name: str = "", *, cases: bool = False) -> Statement:
        """Return a definition of a module together with all that it uses there; without a name, all of the module."""
        statements = self.statements(module, cases)
        reached: list[Statement] = []
        wanted = [statement for statement in statements if not name or name in statement.defines or statement.shared]
        while wanted:
            statement = wanted.pop()
            if statement not in reached:
                reached.append(statement)
                wanted += [other for other in statements if other.defines & (statement.words | statement.strings)]
        strings = {text for statement in reached for text in statement.strings}
        imports = [pair for statement in reached for pair in statement.imports]
        for target in {target for _, target in imports if target.startswith("support.")}:
            _, helper, *rest = target.split(".")
            path = self.root / "tests" / "support" / f"{helper}.py"
            strings |= self.code(path, "".join(rest)).strings if path.is_file() and path != module else set()
        code = "\n".join(sorted(statement.code for statement in reached))
        return Statement(set(), set(), strings, imports, code, shared=True)

    def resolve(self, texts: Iterable[str], context: Iterable[str]) -> set[Path]:
        """Return the published files that texts name: those of the folders that the context names, if there are any."""
        texts, words = {*texts}, {word for text in {*context, *texts} for word in text.split("/")}
        files: set[Path] = set()
        for name in {name for text in texts for name in (text, *file_names(text))}:
            ends = self.by_name.get(name.rpartition("/")[2], set())
            if "/" in name:
                ends = {path for path in ends if path.as_posix().endswith(name.lstrip("./"))}
            places = {path: len(words.intersection(path.parts[:-1])) for path in ends}
            most = max(places.values(), default=0)
            files |= {path for path, count in places.items() if count == most and ("." in name or count > 1)}
        return files

    def inside(self, texts: Iterable[str]) -> set[Path]:
        """Return the files of the guides and failures that texts name."""
        places = {place for text in texts for place in self.folders.get(text.replace("-", "_"), ())}
        return {path for path in self.published if places.intersection(path.parents)} if places else set()

    def needed(self, file: Path) -> set[Path]:
        """Return a published file with its recordings and, in turn, the files of its guide that it names."""
        reached, wanted = set(), {file}
        while wanted:
            reached.add(path := wanted.pop())
            area = path.parts[2] if path.parts[1] == "failures" else path.parts[1]
            names = {name.rpartition("/")[2] for name in file_names(self.text(path))}
            parts = [target.split(".") for target in self.modules(path)]
            names |= {f"{part}.py" for words in parts for part in (words[0], words[-1])}
            wanted |= {other for name in names for other in self.by_name.get(name, ()) if area in other.parts} - reached
        beside = {found for path in reached for found in (self.root / path).parent.glob(f"{path.stem}.*recording.json")}
        return reached | {recording.relative_to(self.root) for recording in beside}

    def text(self, path: Path) -> str:
        """Return the text of a published file in which it may name others: that of a script without its comments."""
        text = (self.root / path).read_text(encoding="utf-8", errors="replace")
        return re.sub(r"^ *#.*$", "", text, flags=re.MULTILINE) if path.suffix in (".sbatch", ".sh") else text

    def modules(self, path: Path) -> set[str]:
        """Return the modules that a file imports, or whose commands it runs."""
        if path.suffix in (".sbatch", ".sh"):
            return {f"srunbook.{word}" for word in PART.findall(self.text(path))}
        with contextlib.suppress(SyntaxError):  # its own tests fail for that, and no others
            return (
                {target for _, target in imported(ast.walk(ast.parse(self.text(path))))}
                if path.suffix == ".py"
                else set()
            )
        return set()

    def room(self, name: str) -> set[Path]:
        """Return the files of a part of our library, and of the parts that it imports; of none for any other word."""
        offered = re.findall(r'"(\w+)"', (self.library / "__init__.py").read_text(encoding="utf-8"))
        reached, wanted, files = set(), {name}, set()
        while wanted:
            reached.add(room := wanted.pop())
            inside = [*(self.library / room).rglob("*"), self.library / f"{room}.py"] if room.isidentifier() else []
            own = {path.relative_to(self.root) for path in inside if path.is_file() and path.suffix != ".pyc"}
            imports = {target for path in own for target in self.modules(path)}
            wanted |= {target.split(".")[1] for target in imports if target.startswith("srunbook.")}
            wanted |= {"__init__"} if room in offered else set()
            wanted -= reached
            files |= own
        return files


@cache
def installed_version(module: str) -> str | None:
    """Return the version of the package that an import comes from, or None for one of Python's own or of ours."""
    packages = sorted({*packages_of_imports().get(module, ())} - {"srunbook"})
    return " ".join(importlib.metadata.version(name).split("+")[0] for name in packages) or None


packages_of_imports = cache(importlib.metadata.packages_distributions)
