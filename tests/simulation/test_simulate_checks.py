"""What is checked before the start."""

from __future__ import annotations

import contextlib
import itertools
import socket

import pytest

from srunbook import simulate
from srunbook.simulate import _checks as checks


@pytest.fixture(autouse=True)
def _forget_lookups():
    checks.host_name_problem.cache_clear()
    yield
    checks.host_name_problem.cache_clear()


@pytest.fixture
def addresses(monkeypatch):
    """Let this machine have these addresses only."""

    def have(*present):
        monkeypatch.setattr(checks, "_can_bind", lambda address, port=0: address in ("", *present))

    return have


def test_one_address_for_all_nodes(addresses, capsys):
    """Where 127.0.0.2 does not exist, as on macOS, all nodes share 127.0.0.1, and this is said once."""
    addresses("127.0.0.1")

    result = simulate.run(["sh", "-c", "echo $SLURMD_NODENAME $SLURM_JOB_NODELIST"], nodes=2, echo=True)

    assert [rank.output for rank in result.ranks] == ["127.0.0.1 127.0.0.[1,1]"] * 2
    assert capsys.readouterr().err.count("no address 127.0.0.2") == 1


def test_no_loopback(addresses):
    """Without a loopback interface nothing is started, and the message says how to bring it up."""
    addresses()

    with pytest.raises(simulate.SimulationError, match="ip link set lo up"):
        simulate.run(["true"])


def test_job_ids_at_once_share_no_port():
    """While simulations run, their job ids give different ports for JAX and for Lightning."""
    with contextlib.ExitStack() as stack:
        ids = [stack.enter_context(checks.fresh_job_id(["127.0.0.1"])) for _ in range(60)]

        ports = [port for job_id in ids for port in checks.derived_ports(job_id)]
        assert len(set(ports)) == 120


def test_a_taken_port_is_avoided(monkeypatch):
    """A job id whose derived port is in use is not taken."""
    with checks.fresh_job_id(["127.0.0.1"]) as taken:  # free of other simulations on this machine
        jax_port, _ = checks.derived_ports(taken)
    wished = itertools.count(taken - 100_000)
    monkeypatch.setattr(checks.secrets, "randbelow", lambda _: next(wished))

    with socket.socket() as other:
        other.bind(("127.0.0.1", jax_port))

        with checks.fresh_job_id(["127.0.0.1"]) as job_id:
            assert job_id > taken


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (["127.0.0.1"], None),
        (["192.0.2.7"], "resolves to 192.0.2.7, which is none of its addresses"),
        (socket.gaierror(-3, "Temporary failure"), "does not resolve, so JAX's collectives will abort"),
    ],
)
def test_own_name(answer, problem, monkeypatch):
    """A machine's own name that does not resolve, or resolves to another machine, is found before the start."""

    def look_up(*_, **__):
        if isinstance(answer, OSError):
            raise answer
        return [(None, None, None, "", (address, 0)) for address in answer]

    monkeypatch.setattr(checks.socket, "getaddrinfo", look_up)

    found = checks.host_name_problem()

    if problem is None:
        assert found is None
    else:
        assert problem in found
        assert f"add this line to /etc/hosts: 127.0.0.1 {socket.gethostname()}" in found


def test_a_bad_name_is_said(monkeypatch, capsys):
    """A problem with the machine's name is said before the start, and again when a rank fails."""
    monkeypatch.setattr(checks.socket, "getaddrinfo", lambda *_, **__: (_ for _ in ()).throw(socket.gaierror(-3, "x")))

    result = simulate.run(["false"], nodes=2, echo=True)

    assert capsys.readouterr().err.startswith("srunbook simulate: the name of this machine")
    assert "does not resolve" in result.failure


@pytest.mark.parametrize(
    ("environ", "no_proxy"),
    [
        ({"http_proxy": "http://proxy:3128"}, "127.0.0.1,127.0.0.2"),
        ({"https_proxy": "http://proxy:3128", "no_proxy": "intern,127.0.0.2"}, "intern,127.0.0.2,127.0.0.1"),
        ({"HTTP_PROXY": "http://proxy:3128"}, None),
    ],
)
def test_proxies(environ, no_proxy):
    """A lower-case proxy stays, but the nodes are spared from it, and this is said."""
    before = dict(environ)

    notice = checks.spare_from_proxy(environ, ["127.0.0.1", "127.0.0.2"])

    assert environ.get("no_proxy") == no_proxy
    assert (notice is None) == (no_proxy is None)
    assert environ.items() >= {name: value for name, value in before.items() if name != "no_proxy"}.items()
