"""JAX, torch and Lightning find their ranks in a simulation by their own means."""

from __future__ import annotations

import threading

import pytest

from srunbook import simulate

PSUM = """
    import jax, jax.numpy as jnp
    jax.distributed.initialize()
    local = jnp.ones(jax.local_device_count())
    total = jax.pmap(lambda x: jax.lax.psum(x, "i"), axis_name="i")(local)
    here, everywhere = jax.process_index(), jax.process_count()
    print(f"process {here} of {everywhere}: {jax.local_device_count()} devices, y={total}", flush=True)
"""


def lines_with(result, word):
    """The output lines that hold a word, without what the libraries print themselves."""
    return [line for line in result.output.splitlines() if word in line]


@pytest.fixture
def psum(program):
    """A JAX program that sums over all processes."""
    pytest.importorskip("jax")
    return program(PSUM)


def test_jax(psum, monkeypatch):
    """jax.distributed.initialize() without arguments finds four processes, though the parent forces 8 devices."""
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
    monkeypatch.setenv("JAX_NUM_CPU_DEVICES", "8")

    result = simulate.run(psum, nodes=2, ntasks_per_node=2, timeout=90)

    assert result.returncode == 0, result.failure
    assert lines_with(result, "y=") == [f"[{rank}] process {rank} of 4: 1 devices, y=[4.]" for rank in range(4)]


def test_jax_with_gpus_asked(psum):
    """With four GPUs asked for each node, two processes on it show two CPU devices each."""
    result = simulate.run(psum, nodes=1, ntasks_per_node=2, gpus_per_node=4, timeout=90)

    assert result.returncode == 0, result.failure
    assert lines_with(result, "y=") == [f"[{rank}] process {rank} of 2: 2 devices, y=[4. 4.]" for rank in range(2)]


def test_two_at_once(psum):
    """Two JAX simulations at once do not meet on one port."""
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(simulate.run(psum, nodes=2, timeout=90))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [len(lines_with(result, "y=[2.]")) for result in results] == [2, 2]


def test_jax_behind_a_proxy(psum, monkeypatch):
    """A lower-case http_proxy, behind which JAX's start hangs, does not reach the traffic between the nodes."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")

    result = simulate.run(psum, nodes=2, timeout=90)

    assert result.returncode == 0, result.failure
    assert "added to no_proxy" in result.notices[0]


def test_jax_behind_a_proxy_that_is_not_kept_away(psum):
    """The proxy does keep JAX from starting when the nodes are not in no_proxy."""
    result = simulate.run(psum, nodes=2, timeout=15, env={"http_proxy": "http://127.0.0.1:9", "no_proxy": ""})

    assert result.timed_out
    assert not lines_with(result, "y=")


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

    result = simulate.run(command, ntasks_per_node="2,1", gpus_per_node=2, timeout=90)

    assert result.returncode == 0, result.failure
    sums = [line.rsplit(" ", 1)[0] for line in lines_with(result, "sum")]
    assert sums == [f"[{rank}] rank {rank} of 3: sum 3" for rank in range(3)]


def test_lightning(program):
    """Lightning chooses its SLURMEnvironment and trains with DDP on two nodes, told nothing about ranks."""
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
        kind = type(trainer.strategy.cluster_environment).__name__
        print(f"{kind}: rank {trainer.global_rank} of {trainer.world_size}, step {trainer.global_step}", flush=True)
        torch.distributed.barrier()
        os._exit(0)  # gloo may abort a process that ends by itself: torch-abort-at-exit.md
        """
    )

    result = simulate.run(command, nodes=2, ntasks_per_node=1, timeout=110)

    assert result.returncode == 0, result.failure
    assert lines_with(result, "SLURMEnvironment") == [
        f"[{rank}] SLURMEnvironment: rank {rank} of 2, step 2" for rank in range(2)
    ]
