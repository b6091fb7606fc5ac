"""Options and fixtures that all tests share."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--record`."""
    parser.addoption(
        "--record", action="store_true", help="write what a run printed beside its program, in place of comparing it"
    )


@pytest.fixture
def recording_wanted(request: pytest.FixtureRequest) -> bool:
    """Whether recordings are to be written, and not compared."""
    return bool(request.config.getoption("--record"))
