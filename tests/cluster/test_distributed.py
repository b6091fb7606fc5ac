"""initialize_distributed() on the real Slurm: two steps at once."""

from __future__ import annotations

import re
from pathlib import Path

from srunbook import cluster
from srunbook.cluster import State

HEAD = """\
#!/bin/bash
#SBATCH --output=steps.out
#SBATCH --time=01:00:00
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=1
export PATH="$HOME/jax-env/bin:$PATH" JAX_PLATFORMS=cpu JAX_NUM_CPU_DEVICES=1
"""

TOGETHER = """
import os, sys, time
from pathlib import Path
from srunbook import initialize_distributed

rank, step = os.environ["SLURM_PROCID"], os.environ["SLURM_STEP_ID"]
Path(f"step{step}.{rank}").touch()
while len(list(Path().glob("step*.*"))) < 4:
    time.sleep(0.1)
with initialize_distributed(timeout=600) as info:
    from jax.experimental import multihost_utils
    steps = sorted({int(one) for one in multihost_utils.process_allgather(int(step))})
    address = info.coordinator_address
    sys.stdout.write(f"step {step} rank {info.process_id}/{info.num_processes} at {address} has {steps}\\n")
"""


def test_two_steps_at_once(slurm: State, tmp_path: Path) -> None:
    """Two steps of a job that run at once on the same nodes meet at ports of their own, and do not mix."""
    script, program = tmp_path / "steps.sbatch", tmp_path / "together.py"
    step = "srun --overlap --cpus-per-task=1 python together.py &\n"
    script.write_text(HEAD + step + step + "wait\n", encoding="utf-8")
    program.write_text(TOGETHER, encoding="utf-8")
    inside = cluster.stage(slurm, script, extra=[program])
    job = cluster.submit(slurm, script, folder=inside)
    lines = re.findall(r"step (\d) rank (\d)/2 at (\S+) has \[(\d)\]", job.output)

    assert job.state == "COMPLETED", job.output
    assert sorted((step, rank, own) for step, rank, _, own in lines) == [
        (step, rank, step) for step in "01" for rank in "01"
    ]
    assert len({address for _, _, address, _ in lines}) == 2
