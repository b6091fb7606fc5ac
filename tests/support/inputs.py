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
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache, cached_property
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

    defines: frozenset[str]
    words: frozenset[str]
    strings: frozenset[str]
    imports: tuple[tuple[str, str], ...]
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
    decorators = [ast.unparse(found) for found in getattr(node, "decorator_list", ())]
    if decorators and not cases:
        node = copy.copy(node)
        pairs = zip(node.decorator_list, decorators, strict=True)  # type: ignore[attr-defined]
        node.decorator_list = [found for found, text in pairs if ".parametrize(" not in text]  # type: ignore[attr-defined]
    below = [*ast.walk(node)]
    docstrings = {id(found.value) for found in below if isinstance(found, ast.Expr)}
    constants = [found for found in below if isinstance(found, ast.Constant) and isinstance(found.value, str)]
    names = {found.id for found in below if isinstance(found, ast.Name)}
    targets = {found.id for found in below if isinstance(found, ast.Name) and isinstance(found.ctx, ast.Store)}
    imports = tuple(imported(below))
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        defines = {node.name}
    else:
        defines = targets | ({name for name, _ in imports} if isinstance(node, ast.Import | ast.ImportFrom) else set())
    return Statement(
        defines=frozenset(defines),
        words=frozenset(names | {found.arg for found in below if isinstance(found, ast.arg)}),
        strings=frozenset(found.value for found in constants if id(found) not in docstrings),
        imports=imports,
        code=ast.unparse(node),
        shared=not defines or "pytestmark" in defines or any("autouse=True" in text for text in decorators),
    )


class Inputs:
    """The inputs of the tests of a repository.

    Args:
        root: Its folder.
        version: Returns the version of what is installed under an import's name, or None.
    """

    def __init__(self, root: Path, version: Callable[[str], str | None]) -> None:
        self.root = root
        self.version = version
        self.statements = cache(self._statements)
        self.digest = cache(lambda path: hashlib.sha256(path.read_bytes()).hexdigest())
        self.needed = cache(self._needed)
        self.room = cache(self._room)
        self.modules = cache(self._modules)
        self.code = cache(self._code)

    @cached_property
    def published(self) -> list[Path]:
        """Return the files that tests may name, by their paths from the root."""
        found = []
        for folder, _, names in (step for name in PUBLISHED for step in os.walk(self.root / name)):
            place = Path(folder).relative_to(self.root)
            if place.parts[:2] == ("docs", "gallery") or place.name.startswith("_"):
                continue
            names = [name for name in names if not name.startswith(("plot_", "test_"))]
            found += [place / name for name in names if not name.endswith((".pyc", ".recording.json"))]
        return sorted(found)

    @cached_property
    def by_name(self) -> dict[str, list[Path]]:
        """Return the published files by their names and, where they can be run, by their stems."""
        found: dict[str, list[Path]] = {}
        for path in self.published:
            for name in {path.name, *([path.stem] if path.suffix in (".py", ".sbatch", ".sh") else [])}:
                found.setdefault(name, []).append(path)
        return found

    @cached_property
    def folders(self) -> dict[str, set[Path]]:
        """Return the folders of guides and failures by their names."""
        found: dict[str, set[Path]] = {}
        for path in self.published:
            depth = 3 if path.parts[1] == "failures" else 2
            if path.parts[0] in ("examples", "slurm") and len(path.parts) > depth:
                found.setdefault(path.parts[depth - 1].replace("-", "_"), set()).add(Path(*path.parts[:depth]))
        return found

    def of(self, module: Path, test: str, case: str = "", more: Iterable[str] = ()) -> str:
        """Return the hash of all that a test depends on.

        Args:
            module: The file of the test.
            test: The name of its function or class.
            case: The values of its parameters, as text.
            more: What it depends on besides.
        """
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

    def _statements(self, module: Path, cases: bool) -> list[Statement]:
        """Return the statements of a module."""
        nodes = ast.parse(module.read_text(encoding="utf-8")).body
        return [read_statement(node, cases=cases) for node in nodes]

    def _code(self, module: Path, name: str = "", *, cases: bool = False) -> Statement:
        """Return a definition of a module together with all that it uses there; without a name, all of the module."""
        statements = self.statements(module, cases)
        reached: list[Statement] = []
        wanted = [found for found in statements if not name or name in found.defines or found.shared]
        while wanted:
            statement = wanted.pop()
            if statement not in reached:
                reached.append(statement)
                wanted += [found for found in statements if found.defines & (statement.words | statement.strings)]
        texts = {text for found in reached for text in found.strings}
        imports = [one for found in reached for one in found.imports]
        for target in {target for _, target in imports if target.startswith("support.")}:
            _, helper, *rest = target.split(".")
            path = self.root / "tests" / "support" / f"{helper}.py"
            texts |= self.code(path, "".join(rest)).strings if path.is_file() and path != module else set()
        code = "\n".join(sorted(found.code for found in reached))
        return Statement(frozenset(), frozenset(), frozenset(texts), tuple(imports), code, shared=True)

    def resolve(self, texts: Iterable[str], context: Iterable[str]) -> set[Path]:
        """Return the published files that texts name: those of the folders that the context names, if there are any."""
        texts, words = {*texts}, {word for text in {*context, *texts} for word in text.split("/")}
        found: set[Path] = set()
        for name in {name for text in texts for name in (text, *file_names(text))}:
            ends = self.by_name.get(name.rpartition("/")[2], [])
            if "/" in name:
                ends = [path for path in ends if path.as_posix().endswith(name.lstrip("./"))]
            places = {path: len(words.intersection(path.parts[:-1])) for path in ends}
            most = max(places.values(), default=0)
            found |= {path for path, count in places.items() if count == most and ("." in name or count > 1)}
        return found

    def inside(self, texts: Iterable[str]) -> set[Path]:
        """Return the files of the guides and failures that texts name."""
        places = {place for text in texts for place in self.folders.get(text.replace("-", "_"), ())}
        return {path for path in self.published if places.intersection(path.parents)} if places else set()

    def _needed(self, file: Path) -> frozenset[Path]:
        """Return a published file with its recordings and, in turn, the files of its guide that it names."""
        reached, wanted = set(), {file}
        while wanted:
            path = wanted.pop()
            if path in reached:
                continue
            reached.add(path)
            area = path.parts[2] if path.parts[1] == "failures" else path.parts[1]
            names = {name.rpartition("/")[2] for name in file_names(self.text(path))}
            names |= {f"{target.split('.')[-1]}.py" for target in self.modules(path)}
            names |= {f"{target.split('.')[0]}.py" for target in self.modules(path)}
            wanted |= {found for name in names for found in self.by_name.get(name, []) if area in found.parts}
        beside = {found for path in reached for found in (self.root / path).parent.glob(f"{path.stem}.*recording.json")}
        return frozenset(reached | {found.relative_to(self.root) for found in beside})

    def text(self, path: Path) -> str:
        """Return the text of a published file in which it may name others: that of a script without its comments."""
        text = (self.root / path).read_text(encoding="utf-8", errors="replace")
        return re.sub(r"^ *#.*$", "", text, flags=re.MULTILINE) if path.suffix in (".sbatch", ".sh") else text

    def _modules(self, path: Path) -> frozenset[str]:
        """Return the modules that a file imports, or whose commands it runs."""
        if path.suffix == ".py":
            with contextlib.suppress(SyntaxError):
                nodes = ast.walk(ast.parse((self.root / path).read_text(encoding="utf-8")))
                return frozenset(target for _, target in imported(nodes))
        if path.suffix in (".sbatch", ".sh"):
            return frozenset(f"srunbook.{word}" for word in PART.findall(self.text(path)))
        return frozenset()

    def _room(self, name: str) -> frozenset[Path]:
        """Return the files of a part of our library, and of the parts that it imports; of none for any other word."""
        library = self.root / "src" / "srunbook"
        package = library / "__init__.py"
        offered = re.findall(r'"(\w+)"', package.read_text(encoding="utf-8")) if package.exists() else []
        reached, wanted, files = set(), {name}, set()
        while wanted:
            room = wanted.pop()
            if room in reached or not room.isidentifier():
                continue
            reached.add(room)
            inside = [*(library / room).rglob("*"), library / f"{room}.py"]
            found = {path.relative_to(self.root) for path in inside if path.is_file() and path.suffix != ".pyc"}
            files |= found
            imports = {target for path in found for target in self.modules(path)}
            wanted |= {target.split(".")[1] for target in imports if target.startswith("srunbook.")}
            wanted |= {"__init__"} if room in offered else set()
        return frozenset(files)


@cache
def installed_version(module: str) -> str | None:
    """Return the version of the package that an import comes from, or None for one of Python's own or of ours."""
    packages = _packages().get(module, [])
    return (
        " ".join(importlib.metadata.version(name).split("+")[0] for name in sorted({*packages} - {"srunbook"})) or None
    )


@cache
def _packages() -> dict[str, list[str]]:
    return {name: [*found] for name, found in importlib.metadata.packages_distributions().items()}
