"""What `submit` reads of the output of a job: element after element, whole, and no character cut in two."""

from __future__ import annotations

import pytest

from srunbook.cluster import Specification, State
from srunbook.cluster._jobs import _Output


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Let a cluster hold the logs of an array and of a job, whose content a test changes."""
    found = {"1": b"", "2": b"", "10": b"", "job": b""}

    def path(self: _Output, part: str) -> str:
        return f"/home/alice/{part.rpartition('_')[2] if '_' in part else 'job'}"

    monkeypatch.setattr(_Output, "_path_of", path)
    monkeypatch.setattr(_Output, "_bytes_from", lambda self, path, offset: found[path.rpartition("/")[2]][offset:])
    return found


def follow(job: str) -> tuple[_Output, list[str]]:
    """Follow a job; return what it is given, too."""
    told: list[str] = []
    return _Output(State(Specification()), job, "alice", told.append), told


def test_elements_are_read_one_after_the_other(files):
    """Lines of elements that run at once do not mix, and `5_10` comes after `5_2`."""
    output, told = follow("5")
    states = {"5_1": "RUNNING", "5_2": "COMPLETED", "5_[10]": "PENDING"}
    files.update({"1": b"a\n", "2": b"b\n"})
    output.read(states, last=False)
    files["1"] += b"c\n"
    output.read(states | {"5_1": "COMPLETED"}, last=False)
    files["10"] = b"d\n"
    output.read({"5_1": "COMPLETED", "5_2": "COMPLETED", "5_10": "FAILED"}, last=True)

    assert "".join(told) == "==> 1 <==\na\nc\n==> 2 <==\nb\n==> 10 <==\nd\n"


def test_a_character_may_come_in_two_pieces(files):
    """Bytes of one character that arrive apart are one character; a half at the end is shown as such."""
    output, told = follow("5")
    text = "\u00e9".encode()
    for new in (text[:1], text[1:] + b"\n" + text[:1]):
        files["job"] += new
        output.read({"5": "RUNNING"}, last=False)
    output.read({}, last=True)

    assert "".join(told) == "\u00e9\n\ufffd"


def test_an_element_that_was_requeued_is_read_on(files):
    """Whoever has ended and begins again writes on; one element that was asked for has no title."""
    output, told = follow("5_1")
    files["1"] = b"a\n"
    output.read({"5_1": "PREEMPTED"}, last=False)
    files["1"] += b"b\n"
    output.read({"5_1": "RUNNING"}, last=False)

    assert "".join(told) == "a\nb\n"
