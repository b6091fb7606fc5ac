"""The front matter of entries about failures: read, checked, and written as the file that `srunbook explain` reads.

`python -m docs._ext.failure_entries` writes `src/srunbook/explain/entries.json`; a build and each session of nox do.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from recordings import Recording, read_recording
from srunbook._files import write_whole
from srunbook._json import parse_json
from srunbook.explain import Entry, Scanner, Trouble, shape
from srunbook.explain.entries import literals

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
FOLDER = "docs/troubleshooting"
SHIPPED = ROOT / "src" / "srunbook" / "explain" / "entries.json"
FRONT_MATTER = re.compile(r"---\n(.*?\n)---\n", re.DOTALL)
LONGEST_FIX = 200
FEWEST_LETTERS = 8
"""Letters that a form of a message has of its own, at least."""


class EntryError(ValueError):
    """The front matter of an entry does not have its form; the message names page, field, and what was expected."""


@cache
def parse_entry(text: str, name: str) -> Entry:
    """Make an entry of the text of its page, which an error calls by the name."""
    front = FRONT_MATTER.match(text)
    if not front:
        raise EntryError(f"{name}: no front matter: an entry begins with its fields between two lines ---")
    try:
        facts = YAML(typ="safe").load(front[1])
    except YAMLError as error:
        raise EntryError(f"{name}: front matter that is not YAML: {' '.join(str(error).split())}") from None
    if isinstance(facts, dict):
        facts.pop("keywords", None)  # for the search of the site alone
    entry = parse_json(json.dumps(facts, default=str), name, Entry, EntryError)
    for problem in _problems(entry):
        raise EntryError(f"{name}: {problem}")
    return entry


def _problems(entry: Entry) -> Iterator[str]:
    """Yield what is wrong with an entry whose fields have the right types."""
    if bool(entry.messages) == bool(entry.seen):
        yield (
            "give `messages`, the literal forms of the message, or for a failure without a message `seen`, what the "
            "reader sees; not both"
        )
    for form in entry.messages:
        letters = sum(character.isalpha() for piece in literals(form) for character in piece)
        if letters < FEWEST_LETTERS:
            yield (
                f"messages: {form!r} has {letters} letters of its own and would match lines of any program: give at "
                f"least {FEWEST_LETTERS}"
            )
    if not entry.fix.endswith(".") or len(entry.fix) > LONGEST_FIX:
        yield f"fix: {entry.fix!r} is not one sentence of at most {LONGEST_FIX} characters"


def read_entries(folder: Path) -> dict[str, Entry]:
    """Read all entries of a folder, by slug, and check that those exist which an entry explains."""
    pages = sorted(path for path in folder.glob("*.md") if path.stem != "index")
    entries = {path.stem: parse_entry(path.read_text(encoding="utf-8"), path.name) for path in pages}
    for slug, entry in entries.items():
        for other in entry.explains:
            if other not in entries:
                raise EntryError(f"{slug}.md: explains {other!r}, which is no entry")
    return entries


def recordings(root: Path) -> Iterator[tuple[Path, Recording]]:
    """Yield the recording of every program and job script, with its path; not those of explanations, which quote."""
    for folder in ("examples", "slurm"):
        for path in sorted((root / folder).rglob("*.recording.json")):
            if path.parent != root / "examples" / "explain":
                yield path, read_recording(path)


def shows_failure(path: Path) -> bool:
    """Tell whether a recording is that of a program about a failure, and not of one that is mended."""
    return "failures" in path.parts and not path.name.startswith("fixed")


def ordinary_lines(root: Path, entries: dict[str, Entry]) -> list[str]:
    """Return the shapes of the lines that speak of trouble in good runs."""
    scanner = Scanner(entries)
    good = [run for path, run in recordings(root) if not shows_failure(path) and not run.exit_code]
    findings = [finding for run in good for finding in scanner.scan("", ["\n".join(run.output).encode()]).findings]
    return sorted({shape(each.text) for each in findings if not each.slug and each.weight is not Trouble.ENDED})


def shipped_text(root: Path) -> str:
    """Return what the wheel carries: the entries, and ordinary lines."""
    entries = read_entries(root / FOLDER)
    described = {slug: asdict(entry) for slug, entry in entries.items()}
    shipped = {"entries": described, "ordinary": ordinary_lines(root, entries)}
    return json.dumps(shipped, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    changed = write_whole(SHIPPED, shipped_text(ROOT))
    print(SHIPPED.relative_to(ROOT), "written" if changed else "is up to date")
