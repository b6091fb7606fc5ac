"""How many examples Hypothesis tries: a few by default, the full number under `--full`; time decides nothing."""

from __future__ import annotations

from hypothesis import settings

EXAMPLES = {"quick": 20, "full": 100}


def load(*, full: bool) -> None:
    """Load the profile for a run of the tests; a test that sets `max_examples` itself keeps its number."""
    for name, examples in EXAMPLES.items():
        settings.register_profile(name, max_examples=examples, deadline=None)
    settings.load_profile("full" if full else "quick")
