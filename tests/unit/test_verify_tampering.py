"""`srunbook verify` against an opponent: no job that was tampered with passes, and no honest one fails."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest
from support.drawn_jobs import SHAPES, draw
from support.tampering import KINDS, Kind, tampered
from support.verdicts import DEFECTS, verdict

from srunbook import verify

SEED = "20261123"


def wrongly_passed(name: str, numbers: Iterable[int], folder: Path) -> list[str]:
    """Return the cases of a kind of tampering that pass, or that break the verifier."""
    wrong = []
    for number in numbers:
        case = tampered(f"{SEED}-{number}:{name}")
        found = verdict(case.job, folder)
        if found.name in ("passed", *DEFECTS):
            wrong.append(f"{found.name}: {case}\n{found.text}")
    return wrong


def wrongly_failed(shape: str, numbers: Iterable[int], folder: Path) -> list[str]:
    """Return the honest jobs of a shape whose verdict is not one that they deserve."""
    wrong = []
    for number in numbers:
        seed = f"{SEED}-{number}:{shape}"
        job = draw(random.Random(seed), shape)
        found = verdict(job, folder)
        if found.name not in job.deserves:
            deserved = " or ".join(sorted(job.deserves))
            wrong.append(f"{found.name}, not {deserved}: draw(random.Random({seed!r}), {shape!r})\n{found.text}")
    return wrong


@pytest.mark.parametrize("name", sorted(KINDS))
def test_tampering_is_found(name, tmp_path):
    """A job tampered with in each way does not pass, and does not break the verifier."""
    assert wrongly_passed(name, range(1), tmp_path / "job") == []


@pytest.mark.parametrize("shape", SHAPES)
def test_an_honest_job_does_not_fail(shape, tmp_path):
    """A hundred honest jobs: each gets a verdict that it deserves."""
    wrong = wrongly_failed(shape, range(SHAPES[shape]), tmp_path / "job")

    assert not wrong, f"{len(wrong)} of {SHAPES[shape]}: {wrong[0]}"


@pytest.mark.full
@pytest.mark.parametrize("name", sorted(KINDS))
def test_tampering_is_found_ten_thousand_times(name, tmp_path):
    """The same with ten thousand jobs."""
    count = -(-10_000 // len(KINDS))
    wrong = wrongly_passed(name, range(3, 3 + count), tmp_path / "job")

    assert not wrong, f"{len(wrong)} of {count}: {wrong[0]}"


@pytest.mark.full
@pytest.mark.parametrize("shape", SHAPES)
def test_a_thousand_honest_jobs_do_not_fail(shape, tmp_path):
    """The same with a thousand jobs."""
    count = 10 * SHAPES[shape]
    wrong = wrongly_failed(shape, range(100, 100 + count), tmp_path / "job")

    assert not wrong, f"{len(wrong)} of {count}: {wrong[0]}"


# The opponent itself


def test_every_kind_says_why():
    """Each kind of tampering says in a sentence why a job that suffered it must not pass."""
    assert len(KINDS) >= 40
    assert [kind.name for kind in KINDS.values() if not kind.why.endswith(".")] == []


def test_a_seed_makes_the_same_case():
    """What a failed test names can be made again."""
    one, two = (tampered(f"{SEED}:rank_twice") for _ in range(2))

    assert str(one) == str(two)
    assert one.job.snapshot() == two.job.snapshot()


def test_tampering_that_changes_nothing_is_drawn_anew(monkeypatch):
    """A change that undoes itself is none, and one that does nothing to most jobs is done to another job."""

    def undone(job, chance):
        job.rows.reverse()
        job.rows.reverse()

    def seldom(job, chance):
        if job.size == 8:
            job.rows.clear()

    for change in (undone, seldom):
        monkeypatch.setitem(KINDS, change.__name__, Kind(change.__name__, "rows", "Why.", change, None))
    with pytest.raises(ValueError, match="undone fits none of 400 jobs"):
        tampered("1:undone")
    assert tampered("1:seldom").job.size == 8


# What judges the verdicts


def test_verdicts_are_told_apart(tmp_path):
    """An honest job passes, and without metrics.csv it does not."""
    job = next(job for job in map(plain, range(99)) if job.deserves == {"passed"} and job.metrics)
    first = verdict(job, tmp_path / "job").name
    del job.files[f"{job.results}/metrics.csv"]

    assert (first, verdict(job, tmp_path / "job").name) == ("passed", "failed")


def plain(number):
    """Draw a job of the common shape."""
    return draw(random.Random(number), "plain", tidy=True)


class Clearing(verify.Report):
    """A report that clears the screen, which one by itself does not do."""

    def text(self):
        """Return its text."""
        return "\x1b[2J"


@pytest.mark.parametrize(
    ("does", "name"),
    [
        (lambda *_, **__: threading.Event().wait(), "hung"),
        (lambda *_, **__: {}["x"], "traceback"),
        (lambda *_, **__: Clearing("17", None, ()), "unprintable"),
    ],
)
def test_a_verifier_that_breaks_is_seen(does, name, tmp_path, monkeypatch):
    """A wait without end, an exception and a report that clears the screen are each seen as what they are."""
    monkeypatch.setattr(verify, "judge", does)

    patience = {"patience": 0.2} if name == "hung" else {}
    assert verdict(plain(1), tmp_path / "job", **patience).name == name
