"""JAX finds its ranks in a simulation by its own means; test_failures.py and the guides run more of it, and torch."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from srunbook import simulate
from srunbook.simulate._checks import derived_ports

PSUM = """
import jax, jax.numpy as jnp
jax.distributed.initialize()
local = jnp.ones(jax.local_device_count())
total = jax.pmap(lambda x: jax.lax.psum(x, "i"), axis_name="i")(local)
here, everywhere = jax.process_index(), jax.process_count()
print(f"met at {jax._src.distributed.global_state.coordinator_address}", flush=True)
print(f"process {here} of {everywhere}: {jax.local_device_count()} devices, y={total}", flush=True)
"""
"""Sums over all processes."""


def lines_with(result, word):
    """Return the output lines that hold a word, without what the libraries print themselves."""
    return [line for line in result.output.splitlines() if word in line]


@pytest.fixture(scope="module")
def two_at_once():
    """Run two JAX simulations at once, from a surrounding environment with a proxy and a device count of its own."""
    pytest.importorskip("jax")
    layouts = [{"nodes": 2, "ntasks_per_node": 2}, {"nodes": 1, "ntasks_per_node": 2, "gpus_per_node": 4}]
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(2) as pool:
        patch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
        patch.setenv("JAX_NUM_CPU_DEVICES", "8")
        patch.setenv("http_proxy", "http://127.0.0.1:9")
        return list(pool.map(lambda layout: simulate.run([sys.executable, "-c", PSUM], **layout), layouts))


def test_devices_are_those_of_the_layout(two_at_once):
    """Each process has one CPU device, or its share of four GPUs that were asked for, though the parent forces 8."""
    assert [lines_with(result, "y=") for result in two_at_once] == [
        [f"[{rank}] process {rank} of 4: 1 devices, y=[4.]" for rank in range(4)],
        [f"[{rank}] process {rank} of 2: 2 devices, y=[4. 4.]" for rank in range(2)],
    ]


def test_two_at_once(two_at_once):
    """Two JAX simulations at once do not meet on one port, and derived_ports agrees with the port that JAX takes."""
    ports = [{line.rsplit(":", 1)[1] for line in lines_with(result, "met at ")} for result in two_at_once]

    assert ports == [{str(derived_ports(result.job_id)[0])} for result in two_at_once]
    assert ports[0] != ports[1]


def test_jax_behind_a_proxy(two_at_once):
    """A lower-case http_proxy does not reach the traffic between the nodes; behind it test_failures.py sees a hang."""
    for result in two_at_once:
        assert result.returncode == 0, result.failure
        assert "added to no_proxy" in result.notices[0]
