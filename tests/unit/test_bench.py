"""What the benchmarks predict: traffic by formula, steps from a network; and the corpus that explain is measured on."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srunbook.explain import load_entries

BENCH = Path(__file__).resolve().parents[2] / "bench"


def program(name: str):
    """Import a program or helper of bench/."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCH)
        patch.setenv("JAX_NUM_CPU_DEVICES", "1")  # some set it where it is not set
        return importlib.import_module(name)


network = program("helpers.network")


def simulated(ready: list[float], all_reduce: list[float], tick: float = 0.25) -> float:
    """Play out one link that works in ticks and takes buckets in order; return when the last all-reduce ends."""
    now, queue = 0.0, [[begin, takes] for begin, takes in zip(ready, all_reduce, strict=True)]
    while queue:
        now += tick
        if queue[0][0] < now:
            queue[0][1] -= tick
        if queue[0][1] <= 0:
            queue.pop(0)
    return now


quarters = st.integers(0, 20).map(lambda number: number / 4)


@given(st.lists(st.tuples(quarters, quarters), max_size=8))
def test_buckets_follow_one_another(buckets):
    """The recurrence ends when a link that is played out tick by tick ends."""
    ready = sorted(begin for begin, _ in buckets)
    takes = [time for _, time in buckets]
    ends = network.bucket_ends(ready, takes)

    assert ends == sorted(ends)
    if buckets and all(takes):
        assert ends[-1] == simulated(ready, takes)


@given(st.floats(0, 1e12), st.integers(1, 1000))
def test_bytes_of_a_ring(size, ranks):
    """One rank sends nothing, two send the size, and none ever sends twice the size."""
    assert network.ring_bytes(size, 1) == 0
    assert network.ring_bytes(size, 2) == size
    assert network.ring_bytes(size, ranks) <= 2 * size


PARAMETERS = 4 * (12 * 64**2 + 10 * 64) + 2 * 13 * 64 + 32 * 64 + 2 * 64
"""Of four blocks with twelve square matrices, biases and norms; of both ends, the positions and the last norm."""


PADDING, BLOCKS = 2 * (16 - 13) * 64, 4 * (12 * 64**2 + 10 * 64)
GATHERED = 3 / 4 * (2 * 2 * BLOCKS + 4 * (PARAMETERS + PADDING - BLOCKS))
REDUCED = 3 / 4 * 4 * (PARAMETERS + PADDING)


@pytest.mark.parametrize(
    ("name", "libraries", "expected"),
    [
        ("ddp.py", ["gloo", "NCCL"], 2 * 3 / 4 * 4 * PARAMETERS),
        ("pipeline.py", ["gloo", "NCCL"], 2 * 3 * (32 * 32 * 64 * 4) / 4),
        ("fsdp.py", ["NCCL"], GATHERED + REDUCED),
        ("fsdp.py", ["gloo"], GATHERED + 2 * REDUCED),
    ],
)
def test_predicted_bytes(name, libraries, expected):
    """DDP reduces all gradients, the pipeline crosses three boundaries twice, FSDP gathers half of the bytes twice.

    FSDP reduces all bytes once over NCCL, and twice over gloo.
    """
    pytest.importorskip("torch")
    model = program("helpers.fit_traffic_model")

    assert [model.predicted_bytes(name, 4, library) for library in libraries] == [expected] * len(libraries)


def test_prediction_of_a_step():
    """The predicted step is the sum of scores, pairs, messages and bytes."""
    constants = program("svgd_scaling").Constants(score_s=0.1, pair_s=1e-3, alpha_s=5.0, beta_s=1e-3)

    assert constants.step(100, 1) == pytest.approx(100 * 0.1 + 100 * 100 * 1e-3)
    assert constants.step(100, 4) == pytest.approx(25 * 0.1 + 25 * 100 * 1e-3 + 2 * 5.0 + 0.75 * 100 * 2 * 8 * 4 * 1e-3)


corpus = program("helpers.corpus")
JOBS = {half: corpus.read_jobs(corpus.path_of(half)) for half in corpus.HALVES}
ALL = [job for jobs in JOBS.values() for job in jobs]
GONE = {"examples/lightning/several_nodes.py", "slurm/gloo_ddp/profile.sbatch"}
"""Programs that were renamed or removed since the jobs ran."""


def test_labels_of_the_corpus():
    """Each job has its own name, a program that exists, and causes that are entries; the halves share no program."""
    assert len({job.name for job in ALL}) == len(ALL)
    assert {cause for job in ALL for cause in job.causes} <= set(load_entries())
    assert {job.program for job in ALL if not (BENCH.parent / job.program).is_file()} <= GONE
    for half, jobs in JOBS.items():
        assert {corpus.half_of(job.program) for job in jobs} == {half}
        assert {job.slurm for job in jobs} - {""} == set(corpus.GENERATIONS[half])


def test_healthy_jobs_have_no_cause():
    """Of some healthy jobs none has a cause; a job that is labelled healthy and is not would be seen."""
    healthy = [job for job in ALL if job.kind == "healthy"][:40]
    failed = next(job for job in ALL if job.kind == "failed" and corpus.judge(job, "as printed").outcome == "right")

    assert {job.name for job in healthy if corpus.judge(job, job.form).outcome != "right"} == set()
    assert corpus.judge(replace(failed, kind="healthy"), "as printed").outcome == "wrong"
