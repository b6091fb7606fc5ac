"""JAX, torch and Lightning find their ranks in a simulation by their own means."""

from __future__ import annotations

import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.hanging import HUNG, WATCH

from srunbook import simulate
from srunbook.simulate._checks import derived_ports

PSUM = """
    import jax, jax.numpy as jnp
    jax.distributed.initialize()
    local = jnp.ones(jax.local_device_count())
    total = jax.pmap(lambda x: jax.lax.psum(x, "i"), axis_name="i")(local)
    here, everywhere = jax.process_index(), jax.process_count()
    print(f"coordinator {jax._src.distributed.global_state.coordinator_address}", flush=True)
    print(f"process {here} of {everywhere}: {jax.local_device_count()} devices, y={total}", flush=True)
"""


def lines_with(result, word):
    """Return the output lines that hold a word, without what the libraries print themselves."""
    return [line for line in result.output.splitlines() if word in line]


@pytest.fixture(scope="module")
def psum(tmp_path_factory):
    """Write a JAX program that sums over all processes."""
    pytest.importorskip("jax")
    path = tmp_path_factory.mktemp("psum") / "program.py"
    path.write_text(textwrap.dedent(PSUM))
    return [sys.executable, str(path)]


@pytest.fixture(scope="module")
def behind_a_proxy(tmp_path_factory):
    """Start a run that hangs, since its proxy is not kept away, and let it wait while other tests run."""
    pytest.importorskip("jax")
    path = tmp_path_factory.mktemp("proxy") / "program.py"
    start = "jax.distributed.initialize()"
    path.write_text(WATCH + textwrap.dedent(PSUM).replace(start, f"expect_hang(); {start}"))
    with ThreadPoolExecutor(1) as pool:
        environ = {"http_proxy": "http://127.0.0.1:9", "no_proxy": ""}
        yield pool.submit(simulate.run, [sys.executable, str(path)], nodes=2, env=environ)


@pytest.fixture(scope="module", autouse=True)
def _waiting(request):
    """Begin the wait with the first test of this file, if the test that needs it will run."""
    name = test_jax_behind_a_proxy_that_is_not_kept_away.__name__
    if any(item.path == request.path and item.name == name for item in request.session.items):
        request.getfixturevalue("behind_a_proxy")


@pytest.fixture(scope="module")
def two_at_once(psum):
    """Run two JAX simulations at once, from a surrounding environment with a proxy and a device count of its own."""
    layouts = [{"nodes": 2, "ntasks_per_node": 2}, {"nodes": 1, "ntasks_per_node": 2, "gpus_per_node": 4}]
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(2) as pool:
        patch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
        patch.setenv("JAX_NUM_CPU_DEVICES", "8")
        patch.setenv("http_proxy", "http://127.0.0.1:9")
        return list(pool.map(lambda layout: simulate.run(psum, **layout), layouts))


def test_jax(two_at_once):
    """jax.distributed.initialize() without arguments finds four processes, though the parent forces 8 devices."""
    result, _ = two_at_once

    assert result.returncode == 0, result.failure
    assert lines_with(result, "y=") == [f"[{rank}] process {rank} of 4: 1 devices, y=[4.]" for rank in range(4)]


def test_jax_with_gpus_asked(two_at_once):
    """With four GPUs asked for each node, two processes on it show two CPU devices each."""
    _, result = two_at_once

    assert result.returncode == 0, result.failure
    assert lines_with(result, "y=") == [f"[{rank}] process {rank} of 2: 2 devices, y=[4. 4.]" for rank in range(2)]


def test_two_at_once(two_at_once):
    """Two JAX simulations at once do not meet on one port, and derived_ports agrees with the port that JAX takes."""
    ports = [{line.rsplit(":", 1)[1] for line in lines_with(result, "coordinator")} for result in two_at_once]

    assert ports == [{str(derived_ports(result.job_id)[0])} for result in two_at_once]
    assert ports[0] != ports[1]


def test_jax_behind_a_proxy(two_at_once):
    """A lower-case http_proxy, behind which JAX's start hangs, does not reach the traffic between the nodes."""
    for result in two_at_once:
        assert result.returncode == 0, result.failure
        assert "added to no_proxy" in result.notices[0]


@pytest.mark.full
def test_torch_with_mapped_ranks(program):
    """In torch, init_process_group works over gloo once ranks are mapped from Slurm's variables."""
    pytest.importorskip("torch")
    command = program(
        """
        import os
        import torch, torch.distributed as dist
        from srunbook.slurm import StepEnvironment
        step = StepEnvironment.from_environ()
        os.environ["MASTER_ADDR"] = step.coordinator
        os.environ["MASTER_PORT"] = str(15000 + step.job_id % 10000)
        dist.init_process_group("gloo", rank=step.rank, world_size=step.world_size)
        total = torch.tensor([float(step.rank)])
        dist.all_reduce(total)
        print(f"rank {dist.get_rank()} of {dist.get_world_size()}: sum {total.item():g}", torch.cuda.is_available())
        dist.barrier()
        os._exit(0)  # gloo may abort a process that ends by itself: torch-abort-at-exit.md
        """
    )

    result = simulate.run(command, ntasks_per_node="2,1", gpus_per_node=2)

    assert result.returncode == 0, result.failure
    sums = [line.rsplit(" ", 1)[0] for line in lines_with(result, "sum")]
    assert sums == [f"[{rank}] rank {rank} of 3: sum 3" for rank in range(3)]


@pytest.mark.full
def test_lightning(program):
    """Lightning chooses its SLURMEnvironment and its port, and trains with DDP on two nodes, told nothing of ranks."""
    pytest.importorskip("lightning")
    command = program(
        """
        import os, warnings
        warnings.filterwarnings("ignore")
        import torch, lightning as L
        from torch.utils.data import DataLoader, TensorDataset

        class Model(L.LightningModule):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(1, 1)
            def training_step(self, batch, _):
                return self.layer(batch[0]).mean()
            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), lr=0.1)

        trainer = L.Trainer(
            accelerator="cpu", devices=1, num_nodes=2, strategy="ddp", max_steps=2, logger=False,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        )
        trainer.fit(Model(), DataLoader(TensorDataset(torch.ones(8, 1)), batch_size=1))
        environment = trainer.strategy.cluster_environment
        kind = type(environment).__name__
        place = f"{kind} at {environment.main_port}: rank {trainer.global_rank} of {trainer.world_size}"
        print(f"{place}, step {trainer.global_step}", flush=True)
        torch.distributed.barrier()
        os._exit(0)  # gloo may abort a process that ends by itself: torch-abort-at-exit.md
        """
    )

    result = simulate.run(command, nodes=2, ntasks_per_node=1)

    port = derived_ports(result.job_id)[1]
    assert result.returncode == 0, result.failure
    assert lines_with(result, "SLURMEnvironment") == [
        f"[{rank}] SLURMEnvironment at {port}: rank {rank} of 2, step 2" for rank in range(2)
    ]


def test_jax_behind_a_proxy_that_is_not_kept_away(behind_a_proxy):
    """The proxy does keep JAX from starting when the nodes are not in no_proxy."""
    result = behind_a_proxy.result()

    assert HUNG in result.output
    assert "in initialize" in result.output
    assert not lines_with(result, "y=")
