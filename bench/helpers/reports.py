"""What the benchmarks of the tests themselves share: arguments, and the files that a report in JUnit's format names."""

from __future__ import annotations

import argparse
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def file_of(classname: str) -> str:
    """Return the path of the file that a test lies in, from the dotted name that the report gives it.

    >>> file_of("tests.unit.test_measurements"), file_of("bench.helpers.typed.Class")
    ('tests/unit/test_measurements.py', 'bench/helpers/typed.py')
    """
    parts = [part for part in classname.split(".") if part]
    for end in range(len(parts), 0, -1):
        path = Path(*parts[:end]).with_suffix(".py")
        if (ROOT / path).is_file():
            return path.as_posix()
    return classname or "no file"


def pair(text: str) -> tuple[str, str]:
    """Split an argument such as `tests=tests.xml`."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"{text!r}: write NAME=VALUE, as in tests=tests.xml")
    return name, value
