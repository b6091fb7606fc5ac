"""How often the search of the built site shows the right page first, and among the first three.

python bench/search_rate.py         # writes bench/results/search_rate.json; needs build/site, which `nox -s docs` makes
python bench/search_rate.py --output here.json
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from helpers.program import write
from measurements import Configuration

import srunbook
from srunbook.explain import load_entries

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "bench" / "results" / "search_rate.json"
STATIC = ROOT / "build" / "site" / "_static"
sys.path.insert(0, str(ROOT / "tests"))

from support.site_search import Query, ask, message_lines, missed, pasted_lines, questions  # noqa: E402

SETS = {
    "messages of the entries, with other numbers and names": lambda: message_lines(load_entries()),
    "lines from public issues": pasted_lines,
    "questions that the ranking was tuned on": lambda: questions("search_questions.yaml"),
    "questions that were kept apart": lambda: questions("search_questions_held_out.yaml"),
}


def rate(name: str, queries: list[Query], answers: list[dict]) -> Configuration:
    """Count the answers to a set that have the right page; print queries without it among the first three results."""
    late = missed(queries, answers, 3)
    print(f"{name}: {len(queries) - len(late)} of {len(queries)}", *late, sep="\n  ", flush=True)
    counts = {
        "asked": len(queries),
        "first": len(queries) - len(missed(queries, answers, 1)),
        "among_three": len(queries) - len(late),
    }
    return Configuration(name, {"queries": name}, {key: [float(count)] for key, count in counts.items()})


def main() -> None:
    """Ask all sets, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    if not (STATIC / "search-index.js").is_file():
        parser.error(f"{STATIC / 'search-index.js'} is not there: run `python3 noxfile.py -s docs` first")
    sets = {name: ask_for() for name, ask_for in SETS.items()}
    index = STATIC / "search-index.js"
    rows = [
        rate(name, queries, ask(STATIC, index, [query.text for query in queries])) for name, queries in sets.items()
    ]
    library = json.loads((STATIC / "vendor" / "minisearch.json").read_text(encoding="utf-8"))
    versions = {"srunbook": srunbook.__version__, library["name"]: library["version"]}
    write(options.output, rows, versions=versions)


if __name__ == "__main__":
    main()
