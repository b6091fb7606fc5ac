"""Files of the site that are made from a model in the library."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from srunbook._files import write_whole

ROOT = Path(__file__).resolve().parents[2]


def kept_in_step(path: Path, text: str, record: bool, test: str) -> None:
    """Compare a file with what the model gives now, or write it; the message names the file of the test."""
    if record:
        write_whole(path, text)

    assert path.read_text(encoding="utf-8") == text, f"python -m pytest {Path(test).relative_to(ROOT)} --record"


def table(fields: Iterable[tuple[str, FieldInfo]], hidden: Iterable[str] = ()) -> str:
    """Return a table of fields: what each is, its default unless the description says it (`hidden`), an example."""
    stream = io.StringIO()
    rows = csv.writer(stream, lineterminator="\n")
    rows.writerow(["Field", "What it is", "Example"])
    for name, info in fields:
        default = info.get_default(call_default_factory=True) if not info.is_required() else None
        said = default in (None, [], {}, (), "") or name in hidden
        also = "" if said else f" By default `{json.dumps(default)}`."
        rows.writerow([f"`{name}`", f"{info.description}{also}", f"`{json.dumps((info.examples or [''])[0])}`"])
    return stream.getvalue()


def below(sections: Mapping[str, Any]) -> list[tuple[str, FieldInfo]]:
    """Return the fields of sections, each with the key under which a file has it."""
    return [(f"{path}.{name}", info) for path, model in sections.items() for name, info in model.model_fields.items()]
