"""Which line of which rank is named as the cause."""

from __future__ import annotations

import pytest

from srunbook.explain import Scanner, diagnose, load_entries

NCCL = "RuntimeError: Distributed package doesn't have NCCL built in"
PEER = "RuntimeError: [pair.cc:553] Connection closed by peer [10.0.0.1]:33164"
PROXY = "JAX detected proxy variable(s) in the environment as distributed setup: http_proxy."
DEADLINE = "absl::Status: DEADLINE_EXCEEDED: Deadline Exceeded"
THREADS = "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid"


def found(*logs, completed=False):
    """Diagnose logs, each given as its lines."""
    scanner = Scanner(load_entries())
    scanned = [scanner.scan(f"rank_{rank}.log", ["\n".join(lines).encode()]) for rank, lines in enumerate(logs)]
    return diagnose(scanned, load_entries(), completed=completed)


def test_first_by_time_is_the_cause():
    """Of two failures the earlier one is the cause, in whatever order the logs are given."""
    late, early = ["2026-11-20 10:00:09", NCCL], ["2026-11-20 10:00:01", "ValueError: bad row"]

    for logs in ([late, early], [early, late]):
        diagnosis = found(*logs)

        assert diagnosis.cause.text == "ValueError: bad row"
        assert [finding.slug for finding in diagnosis.consequences] == ["torch-nccl-without-gpu"]


def test_who_waited_is_no_cause():
    """A rank that lost its connection did so because of another one, even if it is quicker to say so."""
    diagnosis = found(["2026-11-20 10:00:01", PEER], ["2026-11-20 10:00:02", "ZeroDivisionError: division by zero"])

    assert diagnosis.cause.rank == 1
    assert diagnosis.cause.slug == ""
    assert diagnosis.slugs == {"torch-peer-died"}
    assert [finding.text for finding in diagnosis.to_search] == ["ZeroDivisionError: division by zero"]


def test_consequence_alone_is_what_is_known():
    """Where the rank that died said nothing, the message of those that waited is explained."""
    assert found([PEER], ["step 3"]).cause.slug == "torch-peer-died"


def test_entry_that_explains_another():
    """A warning that many good runs print counts where its consequence came, and takes its place."""
    assert found([PROXY]).slugs == set()
    assert found([DEADLINE]).slugs == {"jax-initialize-deadline"}
    assert found([PROXY, DEADLINE]).slugs == {"jax-proxy-variables"}
    assert found([PROXY], [DEADLINE]).cause.text == PROXY


def test_warning_is_no_cause():
    """What good runs print, too, is told apart from failures."""
    diagnosis = found([THREADS, NCCL])

    assert diagnosis.cause.slug == "torch-nccl-without-gpu"
    assert [finding.slug for finding in diagnosis.warnings] == ["torch-one-thread"]
    assert found([THREADS]).cause is None


def test_exceptions_of_one_traceback_are_one_failure():
    """An exception that led to one an entry knows is not another failure, nor is what the same rank says after it."""
    chained = [
        "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes.",
        "",
        "The above exception was the direct cause of the following exception:",
        "RendezvousConnectionError: The connection to the C10d store has failed. See inner exception for details.",
        "KeyError: 'x'",
    ]
    diagnosis = found(chained)

    assert diagnosis.cause.slug == "torch-several-launchers"
    assert diagnosis.to_search == ()


def test_unknown_failure_names_three_lines():
    """What no entry knows is told as such, with the loudest lines, each once, and no result of srun."""
    diagnosis = found(
        ["warning: slow disk", "error: no budget", "OSError: [Errno 5] Input/output error: 'x'"],
        [
            "OSError: [Errno 5] Input/output error: 'x'",
            "it failed",
            "srun: error: node1: task 0: Exited with exit code 1",
        ],
    )

    assert diagnosis.cause.slug == ""
    assert [finding.text for finding in diagnosis.to_search] == [
        "OSError: [Errno 5] Input/output error: 'x'",
        "error: no budget",
        "warning: slow disk",
    ]


def test_completed_job_has_no_unknown_failure():
    """In a job that Slurm calls COMPLETED 0:0, a line that no entry knows is no failure; one that an entry knows is."""
    assert found(["ValueError: tried again"], completed=True).cause is None
    assert found(["Bypassing SIGTERM: 15"], completed=True).cause.slug == "lightning-sigterm"


NO_FAILURE = [
    [],
    ["step 1 loss 0.3"],
    ["# no errors found"],
    ["epoch 1  train error: 0.412  test error: 0.45"],
    ["max abs error: 1.2e-07, relative error = 3e-9"],
    ["error: 0.0123"],
    ["Final error : 1e-3, fatal: 0"],
    ["validation error: nan"],
]


@pytest.mark.parametrize("lines", NO_FAILURE)
def test_nothing_failed(lines):
    """Without a line that speaks of trouble there is no cause; an error with a value is a measure."""
    assert found(lines).cause is None


@pytest.mark.parametrize(
    "line", ["error: 10.0.0.1: no route", "error: 3 ranks did not start", "fatal: 0x17 is no unit"]
)
def test_error_with_a_number(line):
    """An error that begins with a number is still one."""
    assert found([line]).cause.text == line
