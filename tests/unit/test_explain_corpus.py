"""The corpus on which `srunbook explain` is measured: its labels are well-formed, and healthy jobs have no cause."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from support.explain_corpus import (
    DEVELOPMENT,
    GENERATIONS,
    HALVES,
    HELD_OUT,
    Job,
    drawn,
    half_of,
    judge,
    pack,
    path_of,
    read_jobs,
)
from support.log_forms import FORMS, labelled

from srunbook.explain import load_entries

ROOT = Path(__file__).resolve().parents[2]
JOBS = {half: read_jobs(path_of(half)) for half in HALVES}
ALL = [job for jobs in JOBS.values() for job in jobs]
MOST_BYTES = 20 * 10**6
OF_A_MACHINE = re.compile(rf"{re.escape(str(ROOT))}/|/root/|/tmp/tmp")
LOG = "[0] step 1\n[1] step 1\n[1] RuntimeError: Distributed package doesn't have NCCL built in\nsrun: bye"
FAILED = Job("a", "failed", ("torch-nccl-without-gpu",), "x.py", "", "simulation", "22.05", 1, 2, 1, "gzip", LOG)


RENAMED = {"examples/lightning/several_nodes.py"}
"""Programs that have another name since the jobs ran."""


def test_labels_name_entries_and_programs():
    """Each job has a name of its own, a program that exists, a known form, and causes that are entries."""
    entries = load_entries()

    assert len({job.name for job in ALL}) == len(ALL)
    assert {cause for job in ALL for cause in job.causes} <= set(entries)
    assert {job.name for job in ALL if (job.kind == "failed") != bool(job.causes)} == set()
    assert {job.form for job in ALL} <= set(FORMS)
    assert {job.program for job in ALL if not (ROOT / job.program).is_file()} <= RENAMED
    assert {job.name for job in ALL if not job.log and not job.accounting and job.kind == "failed"} == set()
    assert {job.name for job in ALL if job.kind == "healthy" and job.status} == set()


def test_halves_have_no_program_and_no_generation_in_common():
    """A program is in one half, by its path, and a generation of Slurm in one."""
    for half, jobs in JOBS.items():
        assert {half_of(job.program) for job in jobs} == {half}
        assert {job.slurm for job in jobs} - {""} == set(GENERATIONS[half])
    assert not set(GENERATIONS[DEVELOPMENT]) & set(GENERATIONS[HELD_OUT])


def test_corpus_is_small_and_of_no_machine():
    """The files have at most 20 MB, and no folder of the machine where the jobs ran."""
    assert sum(path_of(half).stat().st_size for half in HALVES) <= MOST_BYTES
    assert {job.name for job in ALL if OF_A_MACHINE.search(job.log)} == set()


def test_healthy_jobs_have_no_cause():
    """Of a sample of the healthy jobs, none has a cause, in the form that its label names."""
    healthy = sorted((job for job in ALL if job.kind == "healthy"), key=lambda job: drawn(job.name, "abcdefgh"))
    sample = healthy[:40]

    assert len(sample) == 40
    assert {job.name: judge(job, job.form).named for job in sample if judge(job, job.form).outcome != "right"} == {}


@pytest.mark.parametrize(
    ("job", "outcome"),
    [
        (FAILED, "right"),
        (replace(FAILED, causes=("torch-peer-died",)), "wrong"),
        (replace(FAILED, log="[0] ValueError: no"), "open"),
        (replace(FAILED, kind="unknown", causes=()), "wrong"),
        (replace(FAILED, kind="unknown", causes=(), log="[0] ValueError: no"), "right"),
        (replace(FAILED, kind="healthy", causes=()), "wrong"),
        (replace(FAILED, kind="healthy", causes=(), log="[0] ValueError: no"), "wrong"),
        (replace(FAILED, kind="quiet", causes=(), log="[0] step 1"), "right"),
    ],
)
def test_a_miss_is_seen(job, outcome):
    """The measurement tells a right cause from a wrong one, and both from none."""
    assert judge(job, "as printed").outcome == outcome


@pytest.mark.parametrize("form", FORMS)
def test_form_says_what_the_log_says(form):
    """In each form the failure is found."""
    assert judge(FAILED, form).outcome == "right"


def test_file_of_each_rank():
    """A log is taken apart by its labels, and no line is lost."""
    files = dict(FORMS["a file of each rank"](LOG))

    assert set(files) == {"rank_0.log", "rank_1.log", "job.log"}
    assert sum(len(content.splitlines()) for content in files.values()) == len(labelled(LOG)) == 4


def test_jobs_are_kept_as_they_are(tmp_path):
    """What is packed is read again."""
    pack([FAILED], tmp_path / "jobs.jsonl.xz")
    (tmp_path / "jobs.jsonl").write_text(json.dumps({**vars(FAILED)}) + "\n")

    assert read_jobs(tmp_path / "jobs.jsonl.xz") == read_jobs(tmp_path / "jobs.jsonl") == [FAILED]
