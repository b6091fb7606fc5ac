"""Reports that can be shared: what must not be in them, looked for in many places."""

from __future__ import annotations

import random
import re

import pytest
from failure_entries import ROOT, recordings, shows_failure
from support.drawn_secrets import secret_lines

from srunbook.explain import Redactor


@pytest.mark.parametrize("seed", range(20))
def test_no_secret_is_left(seed):
    """No user, home, host, address, token or key remains, in any of the places where logs print them."""
    for secret, line in secret_lines(random.Random(seed)):
        redactor = Redactor()
        redactor.learn(line)
        masked = redactor.mask(line)

        assert secret not in masked, line
        assert len(re.findall(r"<\w+>", masked)) >= 1


def test_name_learned_once_is_masked_everywhere():
    """A user and a host that one line betrays are masked in all others, each by the same mask."""
    redactor = Redactor()
    redactor.learn("/home/alice/x host=node7")

    assert redactor.mask("alice ran on node7, node71 and node7-ib") == "<user1> ran on <host1>, node71 and <host1>-ib"


def test_line_of_a_host_alone_is_masked():
    """What `hostname` prints, with or without the label of its rank, names a host."""
    redactor = Redactor()
    for line in ("node1", "1: gpu-node22"):
        redactor.learn(line)

    assert [redactor.mask(line) for line in ("node1", "1: gpu-node22")] == ["<host1>", "1: <host2>"]


def test_what_helps_remains():
    """The message, its numbers, files of packages and names of files are kept."""
    file = "site-packages/torch/distributed/run.py, line 1028: timed out after 6000ms"

    assert Redactor().mask(f"File /home/a/.venv/lib/python3.11/{file}") == f"File <path>/{file}"
    for line in (
        "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",
        "10:44:33.5 step 1 loss 0.25: error",
    ):
        assert Redactor().mask(line) == line


def test_recordings_betray_nothing():
    """In the recordings of failures on Slurm, neither users, nodes nor addresses of the cluster are left."""
    told = 0
    for path, run in recordings(ROOT):
        if shows_failure(path) and run.where == "slurm":
            redactor = Redactor(["alice"])
            for line in run.output:
                redactor.learn(line)
            for line in run.output:
                masked = redactor.mask(line)
                told += masked != line

                assert not re.search(r"alice|/home/|\d+\.\d+\.\d+\.\d+|(?<!\w)node\d+(?!\w)", masked), line

    assert told > 10
