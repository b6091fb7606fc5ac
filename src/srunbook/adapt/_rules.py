"""The rules that say which options and commands are a site's, as data: a page's program can read the same file."""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.resources import files
from typing import Any

from srunbook.script import ScriptError


@cache
def rules() -> dict[str, Any]:
    """Read the rules that ship with the package."""
    read: dict[str, Any] = json.loads(files("srunbook.adapt").joinpath("rules.json").read_text(encoding="utf-8"))
    return read


@cache
def pattern(text: str) -> re.Pattern[str]:
    """Compile a pattern of the rules, whose groups are named as in JavaScript."""
    return re.compile(re.sub(r"\(\?<(?=[a-z])", "(?P<", text), re.ASCII)


def refusal(line: int, name: str, **values: object) -> ScriptError:
    """Return the error for a script that is not understood, in the words of the rules."""
    return ScriptError(line, rules()["refusals"][name].format(**values))
